#include "tidepool/ndarray/kernel/chain_blocks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

const Kernel* FindStep(OpCode op, DType dtype, const char* provider) {
  const absl::Span<const Kernel> kernels = KernelRegistry::Find(op, DeviceType::kHost, dtype);
  for (const Kernel& kernel : kernels) {
    if (std::strcmp(kernel.provider, provider) == 0) return &kernel;
  }
  if (!kernels.empty()) return &kernels[0];
  ThrowUnimplemented(absl::StrCat("Op [elementwise_chain]: no kernel for ", Info(op).name, " ",
                                  DTypeName(dtype), " on the host is linked"));
}

// What the step's own operator takes.
struct StepAttributes {
  ScaleShiftAttributes scale_shift;
  ClipAttributes clip;
  AlphaAttributes alpha;
  GeluAttributes gelu;

  explicit StepAttributes(const ChainStep& step)
      : scale_shift{step.a, step.b}, clip{step.a, step.b}, alpha{step.a}, gelu{step.a != 0} {}
  const void* Of(OpCode op) const {
    switch (op) {
      case OpCode::kScaleShift:
        return &scale_shift;
      case OpCode::kClip:
        return &clip;
      case OpCode::kLeakyRelu:
      case OpCode::kElu:
        return &alpha;
      case OpCode::kGelu:
        return &gelu;
      default:
        return nullptr;
    }
  }
};

// Of one operand in a block.
struct BlockRef {
  TensorRef ref;
  int64_t dims[2], strides[2];

  // `repeats`: axes of stride 0 are axes of one element.
  void Set(void* data, DType dtype, const int64_t* block, const int64_t* steps, bool repeats) {
    ref.data = data;
    ref.dtype = dtype;
    ref.present = true;
    ref.rank = 2;
    for (int i = 0; i < 2; ++i) {
      dims[i] = repeats && steps[i] == 0 ? 1 : block[i];
      strides[i] = steps[i];
    }
    ref.dense = (dims[1] == 1 || strides[1] == 1) && (dims[0] == 1 || strides[0] == dims[1]);
    ref.readable_tail = false;
    ref.dims = dims;
    ref.strides = strides;
  }
};

}  // namespace

ChainBlocks::ChainBlocks(const KernelCall& call, const char* provider)
    : call_(call), chain_(call.attrs<ElementwiseChainAttributes>()) {
  const TensorRef& z = call.outputs[0];
  for (int i = 0; i < chain_.count; ++i)
    kernels_[i] = FindStep(chain_.steps[i].op, z.dtype, provider);
  int64_t all[kOperands][kMaxRank] = {};
  for (int n = 0; n < kOperands; ++n) {
    const TensorRef& ref = n == kZ ? z : call.inputs[n];
    if (ref.present) BroadcastStrides(ref.rank, ref.dims, ref.strides, z.rank, all[n]);
  }
  // Two axes in front, so that there are always rows and columns.
  rank_ = 2;
  dims_[0] = dims_[1] = 1;
  for (int n = 0; n < kOperands; ++n) strides_[n][0] = strides_[n][1] = 0;
  for (int i = 0; i < z.rank; ++i) {
    if (z.dims[i] == 1) continue;
    bool merges = rank_ > 2;
    for (int n = 0; merges && n < kOperands; ++n) {
      merges = strides_[n][rank_ - 1] == all[n][i] * z.dims[i];
    }
    if (!merges) dims_[rank_++] = 1;
    dims_[rank_ - 1] *= z.dims[i];
    for (int n = 0; n < kOperands; ++n) strides_[n][rank_ - 1] = all[n][i];
  }
  const auto most = static_cast<int64_t>(kBlockBytes / DTypeBytes(z.dtype));
  const int64_t rows = dims_[rank_ - 2], columns = dims_[rank_ - 1];
  block_columns_ = std::clamp<int64_t>(columns, 1, most);
  block_rows_ = std::clamp<int64_t>(most / block_columns_, 1, std::max<int64_t>(1, rows));
  row_blocks_ = (rows + block_rows_ - 1) / block_rows_;
  column_blocks_ = (columns + block_columns_ - 1) / block_columns_;
  for (int i = 0; i < rank_ - 2; ++i) outer_ *= dims_[i];
}

void ChainBlocks::Run(int64_t block) const {
  const int r = rank_ - 2, c = rank_ - 1;
  const int64_t first[2] = {block / column_blocks_ % row_blocks_ * block_rows_,
                            block % column_blocks_ * block_columns_};
  const int64_t dims[2] = {std::min(block_rows_, dims_[r] - first[0]),
                           std::min(block_columns_, dims_[c] - first[1])};
  const DType dtype = call_.outputs[0].dtype;
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  BlockRef refs[kOperands];
  for (int n = 0; n < kOperands; ++n) {
    const TensorRef& ref = n == kZ ? call_.outputs[0] : call_.inputs[n];
    if (!ref.present) continue;
    int64_t offset = first[0] * strides_[n][r] + first[1] * strides_[n][c];
    int64_t rest = block / (column_blocks_ * row_blocks_);
    for (int axis = r - 1; axis >= 0; --axis) {
      offset += rest % dims_[axis] * strides_[n][axis];
      rest /= dims_[axis];
    }
    const int64_t steps[2] = {strides_[n][r], strides_[n][c]};
    // Functions of one operand do not broadcast it: X lies as the result does.
    refs[n].Set(ref.as<std::byte>() + offset * width, dtype, dims, steps, n == 1 || n == 2);
  }
  alignas(64) std::byte memory[kBlockBytes];
  BlockRef value;
  const int64_t dense[2] = {dims[1], 1};
  value.Set(memory, dtype, dims, dense, false);

  for (int i = 0; i < chain_.count; ++i) {
    const ChainStep& step = chain_.steps[i];
    TensorRef inputs[2] = {i == 0 ? refs[0].ref : value.ref, refs[step.operand].ref};
    if (step.reversed) std::swap(inputs[0], inputs[1]);
    const TensorRef output = i == chain_.count - 1 ? refs[kZ].ref : value.ref;
    const StepAttributes attributes(step);
    KernelCall call;
    call.op = step.op;
    call.inputs = absl::MakeConstSpan(inputs, step.operand == 0 ? 1 : 2);
    call.outputs = absl::MakeConstSpan(&output, 1);
    call.attributes = attributes.Of(step.op);
    kernels_[i]->run(call);
  }
}

}  // namespace tidepool
