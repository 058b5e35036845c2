#include "tidepool/ndarray/dispatch.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

constexpr int kMaxOperands = 4;

TensorRef Ref(const NDArray& array) {
  TensorRef ref;
  ref.data = array.raw_data();
  ref.dtype = array.dtype();
  ref.present = true;
  ref.dense = array.is_dense();
  ref.rank = array.rank();
  ref.dims = array.shape().dims();
  ref.strides = array.strides();
  if (const Buffer* buffer = array.buffer().get()) {
    ref.buffer_id = buffer->id;
    ref.version = buffer->version.load(std::memory_order_relaxed);
  }
  return ref;
}

// The bytes from the first to the last element; strides are never negative.
std::pair<const std::byte*, const std::byte*> Extent(const NDArray& array) {
  int64_t last = 0;
  for (int i = 0; i < array.rank(); ++i) last += (array.dim(i) - 1) * array.strides()[i];
  const int64_t width = static_cast<int64_t>(DTypeBytes(array.dtype()));
  return {array.raw_data(), array.raw_data() + (last + 1) * width};
}

bool SameView(const NDArray& a, const NDArray& b) {
  return a.raw_data() == b.raw_data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.strides(), a.strides() + a.rank(), b.strides());
}

void CheckOverlap(OpCode op, const NDArray& input, int input_index, const NDArray& output,
                  int output_index) {
  if (input.buffer().get() != output.buffer().get() || !input.buffer()) return;
  if (input.NumElements() == 0 || output.NumElements() == 0) return;
  const auto [a, a_end] = Extent(input);
  const auto [b, b_end] = Extent(output);
  if (a >= b_end || b >= a_end) return;
  if (Info(op).in_place && SameView(input, output)) return;
  ThrowInvalidArgument(absl::StrCat(
      "Op [", Info(op).name, "]: output ", OperandName(Info(op).outputs, output_index),
      " overlaps input ", OperandName(Info(op).inputs, input_index),
      Info(op).in_place ? " without being the same view" : "; the operator is not done in place"));
}

[[noreturn]] void ThrowNoKernel(OpCode op, Device device, DType dtype, bool linked_but_refused) {
  const std::vector<std::string> providers = KernelRegistry::Global().Providers();
  const char* forced = ScopedProvider::Current();
  ThrowUnimplemented(absl::StrCat(
      "Op [", Info(op).name, "]: no ", forced != nullptr ? absl::StrCat("\"", forced, "\" ") : "",
      "kernel for ", DTypeName(dtype), " on ", DeviceName(device),
      linked_but_refused ? " supports this call" : " is linked", "; linked providers: ",
      providers.empty() ? "none" : absl::StrJoin(providers, ", "),
      "; add //backends:linked, //backends/cpu or //backends/reference to deps"));
}

// Scratch lives as long as the call, in the current workspace: that of a network is the largest
// any layer needs, not the sum.
class Scratch {
 public:
  void* Get(size_t bytes) {
    handle_ = BufferHandle(AllocateHere(bytes));
    return handle_->data;
  }

 private:
  BufferHandle handle_;
};

}  // namespace

void CheckOperands(OpCode op, std::initializer_list<const NDArray*> inputs) {
  int index = 0;
  for (const NDArray* input : inputs) {
    if (input != nullptr && !(input->is_defined() && input->IsInScope())) {
      input->CheckAlive(Info(op).name, OperandName(Info(op).inputs, index).c_str());
    }
    ++index;
  }
}

void Dispatch(OpCode op, std::initializer_list<const NDArray*> inputs,
              std::initializer_list<NDArray*> outputs, const void* attributes) {
  CheckOperands(op, inputs);
  TensorRef refs[2 * kMaxOperands];
  NDArray dense[2 * kMaxOperands];  // operands made dense for kernels that need it
  int input_count = 0;
  const NDArray* const* input_arrays = inputs.begin();
  NDArray* const* output_arrays = outputs.begin();
  const int output_count = static_cast<int>(outputs.size());
  const Device device = outputs.begin()[0]->device();
  for (const NDArray* input : inputs) {
    if (input != nullptr) {
      refs[input_count] = Ref(*input);
      if (input->device() != device) {
        ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: ",
                                          OperandName(Info(op).inputs, input_count), " is on ",
                                          DeviceName(input->device()), ", the output on ",
                                          DeviceName(device)));
      }
    }
    ++input_count;
  }
  for (int o = 0; o < output_count; ++o) {
    NDArray& output = *output_arrays[o];
    if (!(output.is_defined() && output.IsInScope())) {
      output.CheckAlive(Info(op).name, OperandName(Info(op).outputs, o).c_str());
    }
    for (int i = 0; i < input_count; ++i) {
      if (input_arrays[i] != nullptr) CheckOverlap(op, *input_arrays[i], i, output, o);
    }
    refs[kMaxOperands + o] = Ref(output);
  }
  bool empty = true;
  for (int o = 0; o < output_count; ++o) empty = empty && output_arrays[o]->NumElements() == 0;
  if (empty) return;

  KernelCall call;
  call.op = op;
  call.inputs = absl::Span<const TensorRef>(refs, input_count);
  call.outputs = absl::Span<const TensorRef>(refs + kMaxOperands, output_count);
  call.attributes = attributes;
  call.threads = ThreadCount();

  const DType dtype =
      op == OpCode::kArgMax || op == OpCode::kCopy ? refs[0].dtype : refs[kMaxOperands].dtype;
  const char* forced = ScopedProvider::Current();
  const Kernel* chosen = nullptr;
  const absl::Span<const Kernel> candidates =
      KernelRegistry::Global().Find(op, device.type, dtype);
  for (const Kernel& kernel : candidates) {
    if (forced != nullptr && std::strcmp(forced, kernel.provider) != 0) continue;
    if (kernel.supports != nullptr && !kernel.supports(call)) continue;
    chosen = &kernel;
    break;
  }
  if (chosen == nullptr) ThrowNoKernel(op, device, dtype, !candidates.empty());

  bool copy_back[kMaxOperands] = {};
  if (!chosen->strided) {
    for (int i = 0; i < input_count; ++i) {
      if (!refs[i].present || refs[i].dense) continue;
      dense[i] = input_arrays[i]->Dup();
      refs[i] = Ref(dense[i]);
    }
    for (int o = 0; o < output_count; ++o) {
      TensorRef& ref = refs[kMaxOperands + o];
      if (ref.dense) continue;
      dense[kMaxOperands + o] = output_arrays[o]->Dup();
      ref = Ref(dense[kMaxOperands + o]);
      copy_back[o] = true;
    }
  }
  {
    Scratch scratch;
    if (chosen->scratch_bytes != nullptr) {
      if (const size_t bytes = chosen->scratch_bytes(call); bytes > 0) call.scratch = scratch.Get(bytes);
    }
    chosen->run(call);
  }
  for (int o = 0; o < output_count; ++o) {
    if (copy_back[o]) {
      ScopedProvider any(nullptr);
      Dispatch(OpCode::kCopy, {&dense[kMaxOperands + o]}, {output_arrays[o]});
    }
    output_arrays[o]->MarkWritten();
  }
}

}  // namespace tidepool
