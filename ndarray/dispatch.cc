#include "tidepool/ndarray/dispatch.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/ndarray/call_operands.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/operator_cost.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel_choice.h"
#include "tidepool/ndarray/kernel_run.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/operand_checks.h"

namespace tidepool {

namespace {

void CopyBetweenDevices(const NDArray& from, NDArray& to) {
  CheckNoRepeats(OpCode::kCopy, to, 0);
  to.CheckWritable("copy");
  CheckNotLost(to.device(), "Op [copy]");  // before the host's copy of it counts as older
  to.MarkWritten();
  internal::KernelsAreOff() ? CopyInDryRun(from, to) : CopyAcross(from, to);
}

}  // namespace

namespace {

const bool operators_can_tell = [] {
  internal::tell_operators_of_thread.store(
      []() noexcept { internal::call_marks |= internal::kWritesTold; }, std::memory_order_release);
  return true;
}();

// What memory/profile knows of an array beside its bytes.
void TellWrites(const char* op, absl::Span<NDArray* const> outputs) noexcept {
  MemoryListener* const listener = MemoryListener::Current(MemoryListener::kProfile);
  if (listener == nullptr) {
    internal::call_marks &= static_cast<uint8_t>(~internal::kWritesTold);
    return;
  }
  try {
    for (const NDArray* output : outputs) {
      const Buffer* const buffer = output->buffer().get();
      if (buffer == nullptr) continue;
      const size_t bytes =
          static_cast<size_t>(output->shape().NumElements()) * DTypeBytes(output->dtype());
      listener->Written(
          *buffer, op,
          bytes == buffer->bytes
              ? absl::StrCat(DTypeName(output->dtype()), " ", output->shape().ToString())
              : absl::StrCat(DTypeName(output->dtype()), ", in parts"));
    }
  } catch (const std::exception&) {
    // The recording knows less of it.
  }
}

}  // namespace

void CheckOperands(OpCode op, absl::Span<const NDArray* const> inputs) {
  CheckAlive(Info(op).name, Info(op).inputs, inputs);
}

void Dispatch(OpCode op, absl::Span<const NDArray* const> inputs,
              absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  if (CallRecorder* const recorder = CallRecorder::Current()) [[unlikely]] {
    return recorder->Run(op, inputs, outputs, attributes);
  }
  DispatchUnrecorded(op, inputs, outputs, attributes);
}

void DispatchUnrecorded(OpCode op, absl::Span<const NDArray* const> inputs,
                        absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  // Before they are looked at: an array closed on another thread from here on keeps its bytes until
  // the kernel is done.
  PinScope pins;
  for (const NDArray* input : inputs) {
    if (input != nullptr) pins.Pin(input->buffer().get());
  }
  for (const NDArray* output : outputs) {
    if (output == nullptr) [[unlikely]]
      ThrowNullOutput(op, inputs.size(), outputs, attributes);
    pins.Pin(output->buffer().get());
  }
  pins.Publish();
  const OperatorInfo& info = Info(op);
  CheckCall(info, inputs.size(), outputs.size(), attributes);
  const DType type = outputs[0]->dtype();
  bool mixed = CheckInputsAlive(info, inputs, type);
  CheckOutputsAlive(info, outputs);
  const int input_count = static_cast<int>(inputs.size());
  const int output_count = static_cast<int>(outputs.size());
  CallOperands operands(input_count, output_count);
  Device device = outputs[0]->device();
  for (int o = 1; o < output_count && !outputs[0]->buffer(); ++o) {
    if (outputs[o]->buffer()) device = outputs[o]->device();
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == nullptr) {
      CheckMayBeAbsent(op, info, attributes, i);
      new (&operands.input(i)) TensorRef();
      continue;
    }
    Describe(*inputs[i], operands.input(i));
    if (inputs[i]->device() != device && MustBeOnOneDevice(*inputs[i], outputs)) [[unlikely]] {
      if (op == OpCode::kCopy) return CopyBetweenDevices(*inputs[0], *outputs[0]);
      ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: ", OperandName(info.inputs, i),
                                        " is on ", DeviceName(inputs[i]->device()),
                                        ", the output on ", DeviceName(device)));
    }
  }
  bool empty = true;
  for (int o = 0; o < output_count; ++o) {
    for (int i = 0; i < input_count; ++i) {
      if (inputs[i] != nullptr) CheckOverlap(op, attributes, *inputs[i], i, *outputs[o], o);
    }
    for (int other = 0; other < o; ++other) {
      CheckApart(info, *outputs[other], other, *outputs[o], o);
      mixed = mixed || outputs[o]->dtype() != type;
    }
    if (Describe(*outputs[o], operands.output(o)) != 0) empty = false;
    // Of what others may write to, as nearly never, some is theirs alone to write.
    if (operands.output(o).buffer_id == 0) outputs[o]->CheckWritable(info.name);
    if (!operands.output(o).dense) CheckNoRepeats(op, *outputs[o], o);
  }
  const DType dtype = CheckTypes(info, mixed || info.has_marks, operands);
  CheckShapes(op, inputs, outputs, attributes);
  if (empty) return;

  KernelCall call;
  call.op = op;
  call.inputs = operands.inputs();
  call.outputs = operands.outputs();
  call.attributes = attributes.data();
  ThreadPool* const pool = ThreadPoolScope::Current();
  call.threads = pool != nullptr ? Threads(*pool) : Threads(ThreadCount());
  call.device = device;
  if (device != Host()) {
    if (IsLost(device)) [[unlikely]]
      ThrowLost(device, absl::StrCat("Op [", info.name, "]"));
    call.queue = QueueHere(device);
  }

  // What runs dry has nothing to be sent to the host.
  const bool may_go_to_host = device != Host() && !internal::KernelsAreOff();
  if (may_go_to_host && BelongsOnHost(op, dtype, inputs, outputs)) {
    return DispatchOnHost(op, inputs, outputs, attributes);
  }
  const Kernel* const kernel = ChooseKernel(call, dtype, inputs, outputs);
  if (kernel == nullptr && op != OpCode::kCopy && op != OpCode::kFill && may_go_to_host) {
    CountHostFallback(op);
    return DispatchOnHost(op, inputs, outputs, attributes);
  }
  if (may_go_to_host && kernel != nullptr) PrepareMirrors(op, inputs, outputs);
  // Before the run: a kernel that throws half way must not leave caches of the old bytes valid.
  for (NDArray* output : outputs) output->MarkWritten();
  if (kernel == nullptr) {
    if (internal::KernelsAreOff()) return;
    if (op == OpCode::kCopy) return CopyAcross(*inputs[0], *outputs[0]);
    return FillFromHost(call.attrs<FillAttributes>().value, *outputs[0]);
  }
  if (internal::call_marks != 0) [[unlikely]] {
    if ((internal::call_marks & internal::kWritesTold) != 0) TellWrites(info.name, outputs);
    if (internal::KernelsAreOff() && call.device == Host() && kernel->scratch_bytes == nullptr &&
        (kernel->strided || operands.all_dense())) {
      return;  // it asks for nothing, dense copies neither
    }
  }
  try {
    RunKernel(*kernel, call, operands, inputs, outputs);
  } catch (const OutOfMemoryError&) {
    // Of the device, for scratch or copies, before the kernel began.
    if (!may_go_to_host || !WhyNoFallback(inputs, outputs).empty()) throw;
    const std::exception_ptr lack = std::current_exception();
    try {
      DispatchOnHost(op, inputs, outputs, attributes);
    } catch (const Error& error) {
      // What the host cannot do in its place still lacks memory.
      if (error.code() != absl::StatusCode::kUnimplemented) throw;
      std::rethrow_exception(lack);
    }
    CountHostFallback(op);
  }
}

OperatorCost CostOf(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  CheckAlive(info.name, info.inputs, inputs);
  CheckCall(info, inputs.size(), outputs.size(), attributes);
  for (const NDArray* output : outputs) {
    if (output == nullptr) ThrowNullOutput(op, inputs.size(), outputs, attributes);
  }
  CheckOutputsAlive(info, outputs);
  CallOperands operands(static_cast<int>(inputs.size()), static_cast<int>(outputs.size()));
  for (int i = 0; i < info.input_count; ++i) {
    if (inputs[i] == nullptr) {
      CheckMayBeAbsent(op, info, attributes, i);
      new (&operands.input(i)) TensorRef();
    } else {
      Describe(*inputs[i], operands.input(i));
    }
  }
  for (int o = 0; o < info.output_count; ++o) Describe(*outputs[o], operands.output(o));
  CheckTypes(info, /*mixed=*/true, operands);
  KernelCall call;
  call.op = op;
  call.inputs = operands.inputs();
  call.outputs = operands.outputs();
  call.attributes = attributes.data();
  return CostOf(call);
}

}  // namespace tidepool
