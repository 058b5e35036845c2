#include "tidepool/nn/inference/batchifier.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"

namespace tidepool::nn {
namespace {

void CheckInputs(const char* who, absl::Span<const NDList> inputs) {
  if (inputs.empty()) ThrowInvalidArgument(absl::StrCat(who, ": no inputs"));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].size() != inputs[0].size()) {
      ThrowInvalidArgument(absl::StrCat(who, ": input ", i, " has ", inputs[i].size(),
                                        " arrays, input 0 has ", inputs[0].size()));
    }
    for (size_t k = 0; k < inputs[i].size(); ++k) {
      inputs[i][k].CheckAlive("batchify", "X");
      const NDArray& first = inputs[0][k];
      const NDArray& array = inputs[i][k];
      if (array.dtype() == first.dtype() && array.rank() == first.rank()) continue;
      ThrowInvalidArgument(absl::StrCat(who, ": array ", k, " of input ", i, " is ",
                                        DTypeName(array.dtype()), " of rank ", array.rank(),
                                        ", that of input 0 is ", DTypeName(first.dtype()),
                                        " of rank ", first.rank()));
    }
  }
}

NDArray Stacked(absl::Span<const NDList> inputs, size_t k) {
  if (inputs.size() == 1) return inputs[0][k].ExpandDims(0);
  std::vector<NDArray> parts;
  parts.reserve(inputs.size());
  for (const NDList& input : inputs) parts.push_back(input[k]);
  return Stack(parts, 0);
}

}  // namespace

std::vector<NDList> Batchifier::Unbatchify(const NDList& batch, int64_t count) const {
  std::vector<NDList> outputs(static_cast<size_t>(count));
  for (size_t k = 0; k < batch.size(); ++k) {
    const NDArray& array = batch[k];
    if (array.rank() == 0 || array.dim(0) != count) {
      ThrowInvalidArgument(absl::StrCat("batchifier: output ", k, " has shape ",
                                        array.shape().ToString(), ", expected ", count,
                                        " rows, one per input"));
    }
    for (int64_t i = 0; i < count; ++i) {
      outputs[static_cast<size_t>(i)].Add(array.Index(0, i), batch.name(k));
    }
  }
  return outputs;
}

NDList StackBatchifier::Batchify(absl::Span<const NDList> inputs) const {
  CheckInputs("stack batchifier", inputs);
  NDList batch;
  for (size_t k = 0; k < inputs[0].size(); ++k) batch.Add(Stacked(inputs, k), inputs[0].name(k));
  return batch;
}

NDList PadBatchifier::Batchify(absl::Span<const NDList> inputs) const {
  CheckInputs("pad batchifier", inputs);
  const auto count = static_cast<int64_t>(inputs.size());
  NDList batch;
  for (size_t k = 0; k < inputs[0].size(); ++k) {
    const NDArray& first = inputs[0][k];
    std::vector<int64_t> dims = {count};
    for (int axis = 0; axis < first.rank(); ++axis) {
      int64_t largest = 0;
      for (const NDList& input : inputs) largest = std::max(largest, input[k].dim(axis));
      dims.push_back(largest);
    }
    NDArray padded = Full(Shape(dims), value_, first.dtype());
    for (int64_t i = 0; i < count; ++i) {
      const NDArray& array = inputs[static_cast<size_t>(i)][k];
      NDArray corner = padded.Index(0, i);
      for (int axis = 0; axis < array.rank(); ++axis)
        corner = corner.Slice(axis, 0, array.dim(axis));
      CopyInto(array, corner);
    }
    batch.Add(padded, inputs[0].name(k));
    if (!masks_ || first.rank() == 0) continue;
    NDArray mask = Zeros({count, dims[1]}, DType::kBool);
    for (int64_t i = 0; i < count; ++i) {
      NDArray there = mask.Index(0, i).Slice(0, 0, inputs[static_cast<size_t>(i)][k].dim(0));
      FillInto(1, there);
    }
    const std::string& name = inputs[0].name(k);
    batch.Add(mask, name.empty() ? "mask" : absl::StrCat(name, ".mask"));
  }
  return batch;
}

}  // namespace tidepool::nn
