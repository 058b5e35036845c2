#include "tidepool/eval/do_evaluation.h"

#include <cmath>
#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

// Dense, on the host, of a type that NumberView reads: the array itself where it is all that.
NDArray Readable(const NDArray& array) {
  NDArray result = array.To(Host());
  const DType type = result.dtype();
  if (type != DType::kFloat32 && type != DType::kFloat64 && type != DType::kInt64 &&
      type != DType::kInt32 && type != DType::kBool) {
    result = Cast(result, type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32
                                                                              : DType::kFloat64);
  }
  return result.is_dense() ? result : result.Dup();
}

NumberView ViewOf(const NDArray& array) {
  const size_t size = static_cast<size_t>(array.NumElements());
  switch (array.dtype()) {
    case DType::kFloat32:
      return absl::MakeConstSpan(array.data<float>(), size);
    case DType::kFloat64:
      return absl::MakeConstSpan(array.data<double>(), size);
    case DType::kInt64:
      return absl::MakeConstSpan(array.data<int64_t>(), size);
    case DType::kInt32:
      return absl::MakeConstSpan(array.data<int32_t>(), size);
    default:
      return absl::MakeConstSpan(array.data<bool>(), size);
  }
}

// Whether `whole` begins with `part`, an axis of 1 at the end of `part` aside.
bool Begins(const Shape& whole, const Shape& part) {
  int rank = part.rank();
  if (rank > 0 && rank == whole.rank() && part[rank - 1] == 1) --rank;
  if (rank == 0 || rank > whole.rank()) return false;
  for (int axis = 0; axis < rank; ++axis)
    if (part[axis] != whole[axis]) return false;
  return true;
}

void RequireBegins(const char* what, const NDArray& output, const NDArray& found) {
  if (Begins(output.shape(), found.shape())) return;
  ThrowInvalidArgument(absl::StrCat(what, " have shape ", found.shape().ToString(),
                                    ", expected one that the output's, ", output.shape().ToString(),
                                    ", begins with"));
}

// Of labels; else of sequences' features, where the output has their positions.
NDArray MaskOf(const nn::Batch& batch, const NDArray& output) {
  if (batch.labels_mask.is_defined()) return batch.labels_mask;
  const NDArray& mask = batch.features_mask;
  if (mask.is_defined() && output.rank() > mask.rank() && Begins(output.shape(), mask.shape()))
    return mask;
  return NDArray();
}

NDArray OutputOf(nn::Network& network, const nn::Batch& batch) {
  if (!batch.features_mask.is_defined())
    return network.Forward(batch.features, nullptr, network.inference_workspaces());
  nn::Network::RunOptions options;
  options.masks.push_back(batch.features_mask);
  nn::Arrays inputs;
  inputs.push_back(batch.features);
  return network.Run(std::move(inputs), options)[0];
}

// Probabilities of f16 would be coarse.
NDArray Wide(const NDArray& output) {
  const bool narrow = output.dtype() == DType::kFloat16 || output.dtype() == DType::kBFloat16;
  return narrow ? Cast(output, DType::kFloat32) : output;
}

NDArray Probabilities(const NDArray& output, OutputsAre outputs) {
  switch (outputs) {
    case OutputsAre::kLogits:
      return Softmax(output);
    case OutputsAre::kBinaryLogits:
      return Sigmoid(output);
    case OutputsAre::kScores:
      break;
  }
  return output;
}

// By the scores before they are made probabilities, which would be NaN of infinite ones.
void CheckFinite(const EvaluationBatch& batch, int64_t batch_size, int64_t first_example) {
  const size_t scores = batch.scores.size(), weights = batch.weights.size();
  for (size_t i = 0; i < scores; ++i) {
    if (std::isfinite(batch.scores[i])) continue;
    if (weights > 0 && batch.weights[i / (scores / weights)] == 0) continue;
    throw ScoresNotFiniteError(first_example + static_cast<int64_t>(i) /
                                                   (static_cast<int64_t>(scores) / batch_size));
  }
}

// `given` is the output, or probabilities made of it.
void AddTo(absl::Span<BaseEvaluation* const> evaluations, const nn::Batch& batch,
           const NDArray& output, const NDArray& given, int64_t first_example) {
  RequireBegins("labels", output, batch.labels);
  EvaluationBatch numbers;
  numbers.columns = output.rank() > 1 ? output.dim(output.rank() - 1) : 1;
  const NDArray scores = Readable(output), labels = Readable(batch.labels);
  NDArray mask = MaskOf(batch, output);
  if (mask.is_defined()) {
    RequireBegins("labels_mask", output, mask);
    mask = Readable(mask);
    numbers.weights = ViewOf(mask);
  }
  numbers.scores = ViewOf(scores);
  numbers.labels = ViewOf(labels);
  CheckFinite(numbers, output.dim(0), first_example);
  const NDArray readable = Readable(given);
  numbers.scores = ViewOf(readable);
  for (BaseEvaluation* evaluation : evaluations) evaluation->Add(numbers);
}

}  // namespace

ScoresNotFiniteError::ScoresNotFiniteError(int64_t example)
    : Error(absl::StatusCode::kOutOfRange,
            absl::StrCat("example ", example, ": its scores are not finite")),
      example_(example) {}

EvaluatedCounts DoEvaluation(nn::Network& network, NextBatch next,
                             const DoEvaluationOptions& options,
                             absl::Span<BaseEvaluation* const> evaluations) {
  for (size_t i = 0; i < evaluations.size(); ++i) {
    if (evaluations[i] != nullptr) continue;
    ThrowInvalidArgument(
        absl::StrCat("evaluation ", i, " of ", evaluations.size(), ": found null, expected one"));
  }
  EvaluatedCounts counts;
  // What comes from a device is here; of the host's networks all is in their workspace.
  std::optional<Workspace> copies;
  if (network.device() != Host()) copies.emplace("evaluation");
  while (true) {
    WorkspaceScope scope(network.inference_workspace());
    try {
      std::optional<nn::Batch> batch = next();
      if (!batch) return counts;
      const int64_t size = batch->size();
      const NDArray output = Wide(OutputOf(network, *batch));
      // Made on the network's device, where its workspace is.
      const NDArray given = Probabilities(output, options.outputs);
      std::optional<WorkspaceScope> copies_scope;
      if (copies) copies_scope.emplace(*copies);
      AddTo(evaluations, *batch, output, given, counts.examples);
      ++counts.batches;
      counts.examples += size;
    } catch (const Error&) {
      // An iterator may throw the same one again.
      std::rethrow_exception(WithContext<ScoresNotFiniteError, DeviceLostError>(
          std::current_exception(),
          absl::StrCat("evaluation: batch ", counts.batches, " from example ", counts.examples)));
    }
  }
}

}  // namespace tidepool
