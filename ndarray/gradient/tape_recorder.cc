// Recording. Backwards: tape_backward.cc.
#include "tidepool/ndarray/gradient/tape_recorder.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/repeated_places.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// One address for each thread.
const void* ThisThread() {
  static thread_local const char here = 0;
  return &here;
}

}  // namespace

GradientTape::Recorder::Recorder() : thread_(ThisThread()) {}

GradientTape::Recorder::~Recorder() {
  const bool is_idle = running_segments_ == 0 && state_ != State::kBackward;
  if (thread_ == ThisThread() && is_idle) frame_.Leave();
  if (!frame_.is_in() && is_idle) return;
  // The thread that it records would go on calling it, and what calls it now would go on with it.
  std::fputs(is_idle ? "GradientTape: destroyed on another thread than the one it records\n"
                     : "GradientTape: destroyed within its Backward() or a segment of it\n",
             stderr);
  std::abort();
}

void GradientTape::Recorder::Clear() {
  CheckIdle("Clear");
  if (frame_.is_in()) CheckThread("Clear");
  frame_.Leave();
  ForgetAll();
  state_ = State::kStopped;
}

void GradientTape::Recorder::ForgetAll() {
  task_.Clear();
  shadows_.Clear();
  kept_.Clear();
  records_.Clear();
  writes_.Clear();
  slots_.Clear();
  // Views hold no buffers, and Watch() writes all of them anew.
  destinations_.Clear();
  for (const auto& watched : Watched()) {
    watched->destination.Clear();
    watched->gradient = NDArray();
  }
  kept_bits_ = destination_bits_ = 0;
  has_functions_ = false;
  watched_before_ = watched_count_;
  watched_count_ = 0;
  calls_ = 0;
}

void GradientTape::Recorder::Restart() {
  CheckIdle("Restart");
  if (frame_.is_in()) CheckThread("Restart");
  frame_.Leave();
  // Who has called Clear() as the step before ended has nothing left.
  if (state_ != State::kStopped || slots_.size() > 0 || writes_.size() > 0) ForgetAll();
  records_.set_part(0);
  records_.KeepOwnMemory();
  thread_ = ThisThread();
  frame_.Enter();
  state_ = State::kRecording;
}

void GradientTape::Recorder::CheckThread(const char* what) const {
  if (thread_ == ThisThread()) return;
  ThrowFailedPrecondition(
      absl::StrCat("gradient tape: ", what, " on another thread than the one that made the tape"));
}

void GradientTape::Recorder::CheckIdle(const char* what) const {
  if (state_ == State::kBackward) {
    ThrowFailedPrecondition(absl::StrCat("gradient tape: ", what, " while Backward runs"));
  }
  if (running_segments_ > 0) {
    ThrowFailedPrecondition(
        absl::StrCat("gradient tape: ", what, " within a segment (Recomputed) that it records"));
  }
}

void GradientTape::Recorder::Stop() {
  CheckIdle("Stop");
  if (frame_.is_in()) CheckThread("Stop");
  frame_.Leave();
  if (state_ == State::kRecording) state_ = State::kStopped;
}

bool GradientTape::Recorder::MeetsWatched(const TapedView& view) const {
  const WatchedInSlot* const of_slot = slots_.WatchedOf(view.slot);
  // A part without elements is one of what is watched, as that of what was computed.
  return of_slot != nullptr &&
         (of_slot->FindOverlapping(Places(view)) != nullptr || view.count() == 0);
}

bool GradientTape::Recorder::MeetsWatched(const NDArray& array, uint32_t slot) const {
  const WatchedInSlot* const of_slot = slots_.WatchedOf(slot);
  return of_slot != nullptr &&
         (of_slot->FindOverlapping(Places(array)) != nullptr || array.NumElements() == 0);
}

inline void GradientTape::Recorder::CheckOverwrites(OpCode op, OperandSet needs,
                                                    absl::Span<const NDArray* const> inputs,
                                                    absl::Span<NDArray* const> outputs) {
  for (OperandSet left = needs & (OutputBit(0) - 1); left != 0; left &= left - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(left));
    if (i >= inputs.size()) return;
    if (inputs[i] == nullptr) continue;
    const Buffer* const read = inputs[i]->buffer().get();
    for (const NDArray* const output : outputs) {
      if (MayShareMemory(read, output->buffer().get()) && ViewsOverlap(*inputs[i], *output))
          [[unlikely]]
        ThrowOverwrites(op, static_cast<int>(i));
    }
  }
}

void GradientTape::Recorder::ThrowOverwrites(OpCode op, int input) {
  ThrowInvalidArgument(absl::StrCat(
      "Op [", Info(op).name, "] overwrites its ", OperandName(Info(op).inputs, input),
      ", which its gradient needs while a gradient tape records; expected a result of its "
      "own (x = f(x) instead of in place)"));
}

void GradientTape::Recorder::NoteWrite(const char* op, const NDArray& output, bool is_shared,
                                       bool in_backward) {
  const Buffer* const buffer = output.buffer().get();
  const uint32_t version = buffer->version.load(std::memory_order_relaxed);
  std::shared_ptr<AllocationTrace> site;
  if (MemoryTracing::enabled()) {
    site = std::make_shared<AllocationTrace>();
    site->Capture();
  }
  const Places where(output);
  if (is_shared) {
    writes_.Add({WriteLog::kSharedMemory, version, where.Shifted(AddressOf(*buffer)), op, site,
                 in_backward});
  }
  writes_.Add({buffer->id, version, where, op, std::move(site), in_backward});
}

void GradientTape::Recorder::NoteSite(TapeRecord& record) {
  record.extra = records_.NewExtra();
  record.extra->site = std::make_unique<AllocationTrace>();
  record.extra->site->Capture();
}

void GradientTape::Recorder::RunAside(OpCode op, absl::Span<const NDArray* const> inputs,
                                      absl::Span<NDArray* const> outputs, AttributesRef attributes,
                                      EarlierValues earlier) {
  Dispatch(op, inputs, outputs, attributes);
  NoteWrites(Info(op).name, outputs);
  if (earlier == EarlierValues::kAreOverwritten) return;
  for (const NDArray* const output : outputs) {  // something was added behind the ReLU
    const uint32_t slot = SlotOf(*output);
    if (slot != TapedView::kNoSlot) slots_[slot].ends_with_relu = nullptr;
  }
}

// What small operators cost beside their kernels is mostly this: it looks each buffer up once, and what is rare is elsewhere.
void GradientTape::Recorder::Run(OpCode op, absl::Span<const NDArray* const> inputs,
                                 absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  OperandSet wanted = 0;
  uint32_t input_slots[kMostInputs];  // of those
  int rank = 0;                       // the largest
  for (size_t i = 0; i < inputs.size() && i < kMostInputs; ++i) {
    const NDArray* const input = inputs[i];
    if (input == nullptr) continue;
    rank = std::max(rank, input->rank());
    if (!IsFloating(input->dtype())) continue;
    const uint32_t slot = SlotOf(*input);
    if (slot == TapedView::kNoSlot) continue;
    if (slots_[slot].computed == 0 && !MeetsWatched(*input, slot)) continue;
    input_slots[i] = slot;
    wanted |= InputBit(static_cast<int>(i));
  }
  bool overwrites = false, has_float = false, are_there = true;
  for (const NDArray* const output : outputs) {
    are_there = are_there && output != nullptr;
    if (output == nullptr) continue;
    rank = std::max(rank, output->rank());
    if (!output->buffer() || !IsFloating(output->dtype())) continue;
    has_float = true;
    overwrites = overwrites || SlotOf(*output) != TapedView::kNoSlot;
  }
  const RecorderFrame::OutsideOf outside(frame_);
  // What is of no use to a kernel says so there.
  const bool usable = has_float && are_there && (wanted != 0 || overwrites) &&
                      attributes.Is(info.attributes) &&
                      inputs.size() == static_cast<size_t>(info.input_count) &&
                      outputs.size() == static_cast<size_t>(info.output_count);
  if (!usable) return RunAside(op, inputs, outputs, attributes, EarlierValues::kAreOverwritten);
  const GradientPlan& plan = PlanOf(op);
  if (plan.kind == GradientPlan::Kind::kNone) wanted = 0;
  const EarlierValues earlier =
      plan.is_plain ? EarlierValues::kAreOverwritten : EarlierValuesOf(op, attributes.data());
  if (wanted == 0 && (!overwrites || earlier == EarlierValues::kFlowOn))
    return RunAside(op, inputs, outputs, attributes, earlier);

  OperandSet needs = plan.NeedsOf(op, wanted, attributes.data());
  if (overwrites && earlier == EarlierValues::kFlowThroughRelu) needs |= OutputBit(0);
  if (overwrites && earlier == EarlierValues::kAreOverwrittenAtPlaces) needs |= InputBit(1);
  CheckOverwrites(op, needs, inputs, outputs);
  const size_t inputs_recorded = wanted != 0 || needs != 0 ? inputs.size() : 0;
  TapeRecord* const record =
      records_.NewWithoutViews(static_cast<int>(inputs_recorded + outputs.size()), rank,
                               attributes.data(), wanted != 0 ? info.attributes.bytes() : 0);
  record->op = op;
  record->plan = wanted != 0 ? &plan : nullptr;
  record->wanted = wanted;
  record->needs = needs;
  record->earlier = earlier;
  const size_t view_bytes = record->view_bytes;
  std::byte* next_view = record->first_view();
  for (size_t i = 0; i < inputs_recorded; ++i, next_view += view_bytes) {
    const OperandSet bit = InputBit(static_cast<int>(i));
    if (inputs[i] == nullptr) {
      new (next_view) TapedView();
    } else {
      AddView(next_view, *inputs[i], (wanted & bit) != 0 ? input_slots[i] : TapedView::kNoSlot,
              (needs & bit) != 0);
    }
  }
  record->input_count = static_cast<uint16_t>(inputs_recorded);
  if (MemoryTracing::enabled()) [[unlikely]]
    NoteSite(*record);
  // A pooling applies the gradient of the ReLU before it in the pass it makes anyway.
  if (op == OpCode::kMaxPool2d && wanted != 0 &&
      !static_cast<const Pool2dAttributes*>(attributes.data())->relu_grad) {
    const TapeSlot& slot = slots_[record->view(0).slot];
    record->relu_before =
        slot.ends_with_relu != nullptr &&
        slot.ends_with_relu->view(slot.ends_with_relu->input_count).IsSame(record->view(0));
  }
  slots_.Reserve(outputs.size());
  writes_.Reserve(2 * outputs.size());

  if (CallRecorder* const outer = CallRecorder::Current()) [[unlikely]] {
    outer->Run(op, inputs, outputs, attributes);
  } else {
    DispatchUnrecorded(op, inputs, outputs, attributes);
  }

  NoteWrites(info.name, outputs);
  for (size_t o = 0; o < outputs.size(); ++o, next_view += view_bytes) {
    const NDArray& output = *outputs[o];
    const bool is_kept = (needs & OutputBit(static_cast<int>(o))) != 0;
    TapedView& view = AddView(next_view, output, TapedView::kNoSlot, is_kept);  // places too
    if (!output.buffer() || !IsFloating(output.dtype())) continue;
    view.slot =
        wanted != 0 ? slots_.FindOrAdd(*output.buffer().get(), output.dtype()) : SlotOf(output);
    if (view.slot == TapedView::kNoSlot) continue;
    TapeSlot& slot = slots_[view.slot];
    if (slot.part < 0) slot.part = records_.part();
    if (wanted != 0) slot.computed = 1;
    slot.ends_with_relu = o == 0 && wanted != 0 && !plan.is_plain &&
                                  EndsWithRelu(op, attributes.data()) &&
                                  earlier == EarlierValues::kAreOverwritten
                              ? record
                              : nullptr;
  }
  record->output_count = static_cast<uint16_t>(outputs.size());
  NoteUses(record);
  records_.Commit(record);
  ++calls_;
}

void GradientTape::Recorder::CheckViews(const char* name, const char* what, size_t count) {
  if (count <= TapeRecord::kMostViews) return;
  ThrowInvalidArgument(absl::StrCat("gradient tape: Op [", name, "]: found ", count, " ", what,
                                    ", expected at most ", TapeRecord::kMostViews));
}

TapeRecord* GradientTape::Recorder::NewRecord(TapeRecord::Kind kind, const char* name,
                                              absl::Span<const NDArray> inputs, int outputs,
                                              bool keep_inputs, int kept) {
  TapeRecord* const record =
      records_.New(static_cast<int>(inputs.size()), outputs, kMaxRank, nullptr, 0, kept);
  record->kind = kind;
  has_functions_ = true;
  record->extra = records_.NewExtra();
  record->extra->name = name;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_defined()) continue;
    TapedView& view = record->view(i);
    view.Set(inputs[i]);
    view.slot = SlotOf(inputs[i]);
    if (Flows(view)) {
      if (i < kMostInputs) record->wanted |= InputBit(static_cast<int>(i));
    } else {
      view.slot = TapedView::kNoSlot;
    }
    if (keep_inputs) Keep(view, inputs[i]);
  }
  return record;
}

void GradientTape::Recorder::CommitFunction(TapeRecord* record, absl::Span<const NDArray> outputs) {
  slots_.Reserve(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].is_defined()) continue;
    TapedView& view = record->output(static_cast<int>(o));
    view.Set(outputs[o]);
    if (!outputs[o].buffer() || !IsFloating(outputs[o].dtype())) continue;
    view.slot = slots_.FindOrAdd(*outputs[o].buffer().get(), outputs[o].dtype());
    if (slots_[view.slot].part < 0) slots_[view.slot].part = records_.part();
    slots_[view.slot].computed = 1;
    slots_[view.slot].ends_with_relu = nullptr;
  }
  NoteUses(record);
  records_.Commit(record);
  ++calls_;
}

bool GradientTape::Recorder::FlowsToOne(absl::Span<const NDArray> inputs) const {
  return std::any_of(inputs.begin(), inputs.end(), [this](const NDArray& input) {
    if (!input.is_defined()) return false;
    FreeView view(input);
    view.slot = SlotOf(input);
    return Flows(view);
  });
}

bool GradientTape::Recorder::Follows(absl::Span<const NDArray> inputs) const {
  if (FlowsToOne(inputs)) return true;
  const RecorderFrame::OutsideOf outside(frame_);
  return IsRecorded(inputs);
}

void GradientTape::Recorder::NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                                          absl::Span<const NDArray> outputs, Backward backward) {
  {
    const RecorderFrame::OutsideOf outside(frame_);
    if (CallRecorder* const outer = CallRecorder::Current())
      outer->NoteFunction(name, inputs, outputs, backward);
  }
  if (!FlowsToOne(inputs)) return;
  CheckViews(name, "inputs", inputs.size());
  CheckViews(name, "outputs", outputs.size());
  for (const NDArray& output : outputs) {
    if (!output.is_defined()) continue;
    FreeView once(output);
    once.DropRepeats();
    if (!MayRepeat(once.rank, once.dims(), once.strides())) continue;
    ThrowInvalidArgument(absl::StrCat(
        "gradient tape: Op [", name, "]: found an output, ", DTypeName(once.dtype), " ",
        output.shape().ToString(),
        ", whose strides name elements more than once, expected a place for each (Dup())"));
  }
  // What others have as well stays with the function, which gives it to whoever runs it first.
  int kept = 0;
  if (backward.is_only()) backward->VisitKept([&](const char*, NDArray&, bool) { ++kept; });
  CheckViews(name, "kept arrays", static_cast<size_t>(kept));
  TapeRecord* const record =
      NewRecord(TapeRecord::Kind::kFunction, name, inputs, static_cast<int>(outputs.size()),
                /*keep_inputs=*/false, kept);
  if (kept > 0) {
    int k = 0;
    backward->VisitKept([&](const char*, NDArray& array, bool) {
      TapedView& view = record->kept(k++);
      if (!array.is_defined()) return;
      view.Set(array);
      Keep(view, array);
      array = NDArray();
    });
  }
  record->extra->backward = std::move(backward);
  CommitFunction(record, outputs);
}

void GradientTape::Recorder::PlaceResultsOf(const TapeRecord& record) {
  bool leaves = record.kind == TapeRecord::Kind::kCall;
  for (int i = 0; i < record.input_count && leaves; ++i) {
    const TapedView& view = record.view(i);
    if (!view.present() || (record.wanted & InputBit(i)) == 0) continue;
    const WatchedArray* const watched = FindWatched(view);
    leaves = (watched != nullptr && watched->destination.array.is_defined()) ||
             slots_[view.slot].part != record.part;
  }
  placement_->PlaceResults(leaves);
}

}  // namespace tidepool
