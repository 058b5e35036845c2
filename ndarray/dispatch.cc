#include "tidepool/ndarray/dispatch.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// The operands of one call; made as they are described, of many there seldom are more than three.
class Refs {
 public:
  Refs(int inputs, int outputs) : inputs_(inputs), outputs_(outputs) {}
  TensorRef& input(int i) { return storage_[i].ref; }
  TensorRef& output(int o) { return storage_[kMostInputs + o].ref; }
  absl::Span<const TensorRef> inputs() const {
    return absl::Span<const TensorRef>(&storage_[0].ref, inputs_);
  }
  absl::Span<const TensorRef> outputs() const {
    return absl::Span<const TensorRef>(&storage_[kMostInputs].ref, outputs_);
  }
  bool all_dense() const {
    bool dense = true;
    for (const TensorRef& ref : inputs()) dense = dense && ref.dense;
    for (const TensorRef& ref : outputs()) dense = dense && ref.dense;
    return dense;
  }

 private:
  union Storage {
    Storage() {}
    TensorRef ref;
  };
  Storage storage_[kMostInputs + kMostOutputs];
  int inputs_, outputs_;
};

// Writes every field of what was no TensorRef yet, and returns the number of elements. In place: a struct
// returned by value would be copied by loads wider than the stores just made, which stall.
inline int64_t Describe(const NDArray& array, TensorRef& ref) {
  const int rank = array.rank();
  const int64_t* const dims = array.shape().dims();
  const int64_t* const strides = array.strides();
  int64_t count = 1;
  bool gaps = false;
  for (int i = rank - 1; i >= 0; --i) {
    gaps |= dims[i] != 1 && strides[i] != count;
    count *= dims[i];
  }
  ref.data = array.raw_data();
  ref.dtype = array.dtype();
  ref.present = true;
  ref.dense = !gaps || count == 0;
  ref.rank = rank;
  ref.dims = dims;
  ref.strides = strides;
  const Buffer* const buffer = array.buffer().get();
  const bool keyed = buffer != nullptr && !buffer->MayBeWrittenOutside();
  ref.buffer_id = keyed ? buffer->id : 0;
  ref.version = keyed ? buffer->version.load(std::memory_order_relaxed) : 0;
  ref.readable_tail = buffer == nullptr || buffer->readable_tail;
  return count;
}

bool SameView(const NDArray& a, const NDArray& b) {
  return a.raw_data() == b.raw_data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.strides(), a.strides() + a.rank(), b.strides());
}

inline void CheckOverlap(const OperatorInfo& info, const NDArray& input, int input_index,
                         const NDArray& output, int output_index) {
  if (!MayShareMemory(input.buffer().get(), output.buffer().get())) return;
  if (info.in_place() && SameView(input, output)) return;
  if (!ViewsOverlap(input, output)) return;
  ThrowInvalidArgument(absl::StrCat(
      "Op [", info.name, "]: output ", OperandName(info.outputs, output_index), " overlaps input ",
      OperandName(info.inputs, input_index),
      info.in_place() ? " without being the same view" : "; the operator is not done in place"));
}

// Arrays without elements are nowhere. A call without anything to write reads nothing.
bool MayNotDiffer(const NDArray& input, absl::Span<NDArray* const> outputs) {
  if (input.NumElements() == 0) return false;
  for (const NDArray* output : outputs) {
    if (output->NumElements() > 0) return true;
  }
  return false;
}

// Two elements of a view that is written to may not be one.
void CheckNoRepeats(OpCode op, const NDArray& output, int index) {
  for (int i = 0; i < output.rank(); ++i) {
    if (output.strides()[i] != 0 || output.dim(i) <= 1) continue;
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: output ",
                                      OperandName(Info(op).outputs, index), " of shape ",
                                      output.shape().ToString(), " repeats its elements along axis ",
                                      i, " (BroadcastTo); Dup() makes an array of its own"));
  }
  if (!MayRepeat(output)) return;
  ThrowInvalidArgument(absl::StrCat(
      "Op [", Info(op).name, "]: output ", OperandName(Info(op).outputs, index), " of shape ",
      output.shape().ToString(), " with strides [",
      absl::StrJoin(absl::MakeConstSpan(output.strides(), output.rank()), ", "),
      "] may have two indices of one element; Dup() makes an array of its own"));
}

template <typename Array>
inline void CheckAlive(const char* op, const char* names, absl::Span<Array* const> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const NDArray* const operand = operands[i];
    if (operand == nullptr || (operand->is_defined() && operand->IsInScope())) continue;
    operand->CheckAlive(op, OperandName(names, static_cast<int>(i)).c_str());
  }
}

inline void CheckCall(const OperatorInfo& info, size_t inputs, size_t outputs,
                      AttributesRef attributes) {
  if (!attributes.Is(info.attributes)) [[unlikely]] {
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: found attributes ",
                                      attributes.type_name(), ", expected ",
                                      info.attributes.name()));
  }
  if (inputs != static_cast<size_t>(info.input_count) ||
      outputs != static_cast<size_t>(info.output_count)) [[unlikely]] {
    ThrowInvalidArgument(absl::StrCat(
        "Op [", info.name, "]: found ", inputs, " inputs and ", outputs, " outputs, expected ",
        static_cast<int>(info.input_count), " (", info.inputs, ") and ",
        static_cast<int>(info.output_count), " (", info.outputs, ")"));
  }
}

[[noreturn]] void ThrowNoKernel(OpCode op, Device device, DType dtype,
                                absl::Span<const Kernel> candidates,
                                const std::string& why_no_fallback) {
  const std::vector<std::string> providers = KernelRegistry::Global().Providers();
  const char* forced = ScopedProvider::Current();
  bool linked_but_refused = false;
  for (const Kernel& kernel : candidates) {
    if (forced == nullptr || std::strcmp(forced, kernel.provider) == 0) linked_but_refused = true;
  }
  ThrowUnimplemented(absl::StrCat(
      "Op [", Info(op).name, "]: no ", forced != nullptr ? absl::StrCat("\"", forced, "\" ") : "",
      "kernel for ", DTypeName(dtype), " on ", DeviceName(device),
      linked_but_refused ? " supports this call" : " is linked", "; linked providers: ",
      providers.empty() ? "none" : absl::StrJoin(providers, ", "),
      device == Host()
          ? std::string("; add //backends:linked, //backends/cpu or //backends/reference to deps")
          : absl::StrCat("; not done on the host, as ", why_no_fallback)));
}

void CopyBetweenDevices(const NDArray& from, NDArray& to) {
  CheckNoRepeats(OpCode::kCopy, to, 0);
  to.CheckWritable("copy");
  CheckNotLost(to.device(), "Op [copy]");  // before the host's copy of it counts as older
  to.MarkWritten();
  CopyAcross(from, to);
}

// Scratch lives as long as the call, in the current workspace: that of a network is the largest
// any layer needs, not the sum.
class Scratch {
 public:
  void* Get(size_t bytes, Device device) {
    handle_ = Place::Scratch(device).Allocate(bytes);
    return handle_->data;
  }
  Buffer* buffer() const { return handle_.get(); }

 private:
  BufferHandle handle_;
};

const Kernel* FindKernel(const KernelCall& call, absl::Span<const Kernel> candidates,
                         const char* provider) {
  for (const Kernel& kernel : candidates) {
    if (provider != nullptr && std::strcmp(provider, kernel.provider) != 0) continue;
    if (kernel.supports == nullptr || kernel.supports(call)) return &kernel;
  }
  return nullptr;
}

// Null: on a device without such a kernel, where the host does it.
const Kernel* Choose(const KernelCall& call, DType dtype, absl::Span<const NDArray* const> inputs,
                     absl::Span<NDArray* const> outputs) {
  const absl::Span<const Kernel> candidates =
      KernelRegistry::Find(call.op, call.device.type, dtype);
  const char* forced = ScopedProvider::Current();
  const Kernel* kernel = FindKernel(call, candidates, forced);
  if (kernel == nullptr && (call.op == OpCode::kFill || call.op == OpCode::kCopy)) {
    if (call.device != Host()) return nullptr;
    if (forced != nullptr) kernel = FindKernel(call, candidates, "builtin");
  }
  if (kernel != nullptr) return kernel;
  std::string why_not;
  if (call.device != Host()) {
    why_not = WhyNoFallback(inputs, outputs);
    if (why_not.empty() && KernelRegistry::Find(call.op, DeviceType::kHost, dtype).empty()) {
      why_not = "no kernel of the host is linked for it";
    }
    if (why_not.empty()) return nullptr;
  }
  ThrowNoKernel(call.op, call.device, dtype, candidates, why_not);
}

// On a device: behind the work in its other queues that the call needs.
void RunInOrder(const Kernel& kernel, const KernelCall& call, Buffer* scratch,
                absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs) {
  QueueUse uses[kMostInputs + kMostOutputs + 1];
  size_t count = 0;
  for (const NDArray* input : inputs) {
    if (input != nullptr) uses[count++] = {input->buffer().get(), false};
  }
  for (const NDArray* output : outputs) uses[count++] = {output->buffer().get(), true};
  uses[count++] = {scratch, true};
  const OrderedUses ordered(call.device, call.queue, absl::MakeConstSpan(uses, count));
  NoteOperation(call.device, call.queue, Info(call.op).name);
  kernel.run(call);
}

void Run(const Kernel& kernel, KernelCall& call, absl::Span<const NDArray* const> inputs,
         absl::Span<NDArray* const> outputs) {
  Scratch scratch;
  if (kernel.scratch_bytes != nullptr) {
    if (const size_t bytes = kernel.scratch_bytes(call); bytes > 0) {
      call.scratch = scratch.Get(bytes, call.device);
      call.scratch_bytes = bytes;
    }
  }
  if (call.device != Host()) return RunInOrder(kernel, call, scratch.buffer(), inputs, outputs);
  kernel.run(call);
}

// For kernels that take dense operands only: copies in, and out again. `refs` are the call's.
void RunDense(const Kernel& kernel, KernelCall& call, Refs& refs,
              absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs) {
  NDArray inputs_copied[kMostInputs], outputs_copied[kMostOutputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!refs.input(i).present || refs.input(i).dense) continue;
    inputs_copied[i] = inputs[i]->CopyTo(Place::Scratch(call.device));
    Describe(inputs_copied[i], refs.input(i));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (refs.output(o).dense) continue;
    outputs_copied[o] = outputs[o]->CopyTo(Place::Scratch(call.device));
    Describe(outputs_copied[o], refs.output(o));
  }
  const NDArray* read[kMostInputs];
  NDArray* written[kMostOutputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    read[i] = inputs_copied[i].is_defined() ? &inputs_copied[i] : inputs[i];
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    written[o] = outputs_copied[o].is_defined() ? &outputs_copied[o] : outputs[o];
  }
  Run(kernel, call, absl::MakeConstSpan(read, inputs.size()), absl::MakeConstSpan(written, outputs.size()));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray& copy = outputs_copied[o];
    if (copy.is_defined()) Dispatch(OpCode::kCopy, {&copy}, {outputs[o]});
  }
}

}  // namespace

void CheckOperands(OpCode op, absl::Span<const NDArray* const> inputs) {
  CheckAlive(Info(op).name, Info(op).inputs, inputs);
}

void Dispatch(OpCode op, absl::Span<const NDArray* const> inputs,
              absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  // Before they are looked at: an array closed on another thread from here on keeps its bytes until
  // the kernel is done.
  PinScope pins;
  for (const NDArray* input : inputs) {
    if (input != nullptr) pins.Pin(input->buffer().get());
  }
  for (const NDArray* output : outputs) pins.Pin(output->buffer().get());
  pins.Publish();
  const OperatorInfo& info = Info(op);
  CheckAlive(info.name, info.inputs, inputs);
  CheckCall(info, inputs.size(), outputs.size(), attributes);
  CheckAlive<NDArray>(info.name, info.outputs, outputs);
  const int input_count = static_cast<int>(inputs.size());
  const int output_count = static_cast<int>(outputs.size());
  Refs refs(input_count, output_count);
  Device device = outputs[0]->device();
  for (int o = 1; o < output_count && !outputs[0]->buffer(); ++o) {
    if (outputs[o]->buffer()) device = outputs[o]->device();
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == nullptr) {
      new (&refs.input(i)) TensorRef();
      continue;
    }
    Describe(*inputs[i], refs.input(i));
    if (inputs[i]->device() != device && MayNotDiffer(*inputs[i], outputs)) [[unlikely]] {
      if (op == OpCode::kCopy) return CopyBetweenDevices(*inputs[0], *outputs[0]);
      ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: ", OperandName(info.inputs, i),
                                        " is on ", DeviceName(inputs[i]->device()),
                                        ", the output on ", DeviceName(device)));
    }
  }
  bool empty = true;
  for (int o = 0; o < output_count; ++o) {
    for (int i = 0; i < input_count; ++i) {
      if (inputs[i] != nullptr) CheckOverlap(info, *inputs[i], i, *outputs[o], o);
    }
    for (int other = 0; other < o; ++other) {
      if (!ViewsOverlap(*outputs[other], *outputs[o])) continue;
      ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: outputs ",
                                        OperandName(info.outputs, other), " and ",
                                        OperandName(info.outputs, o), " overlap"));
    }
    if (Describe(*outputs[o], refs.output(o)) != 0) empty = false;
    // Of what others may write to, as nearly never, some is theirs alone to write.
    if (refs.output(o).buffer_id == 0) outputs[o]->CheckWritable(info.name);
    if (!refs.output(o).dense) CheckNoRepeats(op, *outputs[o], o);
  }
  if (empty) return;

  KernelCall call;
  call.op = op;
  call.inputs = refs.inputs();
  call.outputs = refs.outputs();
  call.attributes = attributes.data();
  ThreadPool* const pool = ThreadPoolScope::Current();
  call.threads = pool != nullptr ? Threads(*pool) : Threads(ThreadCount());
  call.device = device;
  if (device != Host()) {
    if (IsLost(device)) [[unlikely]] ThrowLost(device, absl::StrCat("Op [", info.name, "]"));
    call.queue = QueueHere(device);
  }

  const DType dtype = info.key_is_input() ? refs.input(0).dtype : refs.output(0).dtype;
  if (device != Host() && BelongsOnHost(op, dtype, inputs, outputs)) {
    return DispatchOnHost(op, inputs, outputs, attributes);
  }
  const Kernel* const kernel = Choose(call, dtype, inputs, outputs);
  if (kernel == nullptr && op != OpCode::kCopy && op != OpCode::kFill) {
    CountHostFallback(op);
    return DispatchOnHost(op, inputs, outputs, attributes);
  }
  if (device != Host() && kernel != nullptr) PrepareMirrors(op, inputs, outputs);
  // Before the run: a kernel that throws half way must not leave caches of the old bytes valid.
  for (NDArray* output : outputs) output->MarkWritten();
  if (kernel == nullptr) {
    if (op == OpCode::kCopy) return CopyAcross(*inputs[0], *outputs[0]);
    return FillFromHost(call.attrs<FillAttributes>().value, *outputs[0]);
  }
  try {
    if (kernel->strided || refs.all_dense()) {
      Run(*kernel, call, inputs, outputs);
    } else {
      RunDense(*kernel, call, refs, inputs, outputs);
    }
  } catch (const OutOfMemoryError&) {
    // Of the device, for scratch or copies, before the kernel began.
    if (device == Host() || !WhyNoFallback(inputs, outputs).empty()) throw;
    CountHostFallback(op);
    DispatchOnHost(op, inputs, outputs, attributes);
  }
}

}  // namespace tidepool
