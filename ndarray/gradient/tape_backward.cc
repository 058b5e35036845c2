#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/shape_only_array.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

std::string Described(const NDArray& array) {
  return absl::StrCat(DTypeName(array.dtype()), " ", array.shape().ToString());
}

bool ShareMemory(const NDArray& a, const NDArray& b) {
  return a.is_defined() && b.is_defined() && ViewsOverlap(a, b);
}

// Whose gradient function the thread is in.
thread_local constinit TapeRecord* function_under_way = nullptr;

}  // namespace

bool IsGradientUsed(int input) {
  if (function_under_way == nullptr) return true;
  if (input < 0 || input >= function_under_way->input_count) {
    ThrowInvalidArgument(absl::StrCat("gradient tape: input ", input, " of a function of ",
                                      function_under_way->input_count, " inputs"));
  }
  return function_under_way->view(input).slot != TapedView::kNoSlot;
}

void GradientTape::Recorder::Seed(absl::Span<const NDArray> outputs,
                                  absl::Span<const NDArray> output_gradients) {
  if (outputs.empty() || (!output_gradients.empty() && output_gradients.size() != outputs.size())) {
    ThrowInvalidArgument(absl::StrCat(
        "gradient tape: Backward of ", outputs.size(), " outputs with ", output_gradients.size(),
        " gradients, expected at least one output and as many or none"));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray& z = outputs[o];
    z.CheckAlive("backward", "output");
    FreeView view(z);
    view.slot = SlotOf(z);
    if (!Flows(view)) {
      ThrowInvalidArgument(
          absl::StrCat("gradient tape: Backward: output ", o, ", ", Described(z),
                       ", does not come from a watched array by operators that the tape recorded"));
    }
    NDArray dz = output_gradients.empty() ? NDArray() : output_gradients[o];
    if (!dz.is_defined()) {
      if (z.NumElements() != 1) {
        ThrowInvalidArgument(absl::StrCat(
            "gradient tape: Backward: output ", o, ", ", Described(z),
            ", has no gradient given, expected one element or a gradient of its shape"));
      }
      dz = Ones(z.shape(), z.dtype(), Place::CurrentOn(z.device()));
    }
    dz.CheckAlive("backward", "output_gradient");
    if (!(dz.shape() == z.shape()) || dz.dtype() != z.dtype() ||
        (dz.device() != z.device() && dz.NumElements() > 0)) {
      ThrowInvalidArgument(absl::StrCat(
          "gradient tape: Backward: the gradient of output ", o, " is ", Described(dz), " on ",
          DeviceName(dz.device()), ", expected ", Described(z), " on ", DeviceName(z.device())));
    }
    shadows_.Add(view, ElementsOf(view), std::move(dz));
  }
}

void GradientTape::Recorder::RunBackward(absl::Span<const NDArray> outputs,
                                         absl::Span<const NDArray> output_gradients, bool keep,
                                         absl::FunctionRef<void()> seeded) {
  CheckThread("Backward");
  CheckIdle("Backward");
  if (state_ == State::kDone || state_ == State::kFailed) {
    ThrowFailedPrecondition(
        "gradient tape: Backward after it has run: what was recorded is gone; expected once, or "
        "keep");
  }
  try {
    const RecorderFrame::OutsideOf outside(frame_);
    is_recorded_ = IsRecordedHere();
    shadows_.set_may_write_over(!is_recorded_);
    Seed(outputs, output_gradients);
  } catch (...) {
    shadows_.Clear();  // nothing has happened yet
    throw;
  }
  state_ = State::kBackward;
  for (const auto& watched : Watched()) watched->is_final = false;
  try {
    const RecorderFrame::OutsideOf outside(frame_);
    std::optional<RecorderFrame::Only> noted;
    if (MayWriteOverKept()) {
      noted.emplace(&in_backward_);
      in_backward_.set_frame(noted->frame());
    }
    seeded();
    BackTo(nullptr, keep);
    SeparateResults();
  } catch (...) {
    task_.Clear();
    shadows_.Clear();
    kept_.Clear();
    records_.Clear();
    writes_.Clear();
    for (const auto& watched : Watched()) watched->gradient = NDArray();
    state_ = State::kFailed;
    frame_.Leave();
    throw;
  }
  state_ = keep ? State::kKept : State::kDone;
  frame_.Leave();
  if (!keep) {
    kept_.Clear();
    records_.Clear();
    writes_.Clear();
  }
}

void GradientTape::Recorder::BackTo(const TapeRecord* stop, bool keep) {
  int part = -1;
  for (TapeRecord* record = records_.last(); record != stop;) {
    // A segment that runs again is of the part that it is in.
    if (stop == nullptr && record->part != part) {
      if (placement_ != nullptr && part >= 0) shadows_.MoveOutOfPart(*placement_);
      part = record->part;
      records_.set_part(part);
      if (placement_ != nullptr) placement_->EnterPart(part);
      if (listener_ != nullptr) listener_->PartIsNext(part);
    }
    if (placement_ != nullptr) PlaceResultsOf(*record);
    TapeRecord* const previous = record->previous;
    const TapeRecord::Kind kind = record->kind;
    for (int o = 0; o < record->output_count; ++o) {
      const TapedView& output = record->output(o);
      if (output.slot != TapedView::kNoSlot && slots_[output.slot].ends_with_relu == record) {
        slots_[output.slot].ends_with_relu = nullptr;
      }
    }
    WatchedArray* used = kind == TapeRecord::Kind::kWatch ? nullptr : record->watched;
    switch (kind) {
      case TapeRecord::Kind::kCall:
        BackThroughCall(*record, keep);
        break;
      case TapeRecord::Kind::kWatch:
        if (!record->watched->is_final) FinishWatched(*record->watched);
        break;
      case TapeRecord::Kind::kFunction:
        BackThroughFunction(*record, keep);
        break;
      case TapeRecord::Kind::kSegment:
        BackThroughSegment(*record, keep);
        break;
    }
    for (; used != nullptr; used = used->next_used) FinishWatched(*used);
    if (!keep &&
        kind != TapeRecord::Kind::kSegment) {  // a segment drops itself before it runs again
      kept_.Forget(*record);
      records_.Drop();
    }
    record = previous;
  }
}

absl::InlinedVector<NDArray, 2> GradientTape::Recorder::TakeGradients(TapeRecord& record,
                                                                      bool* any) {
  absl::InlinedVector<NDArray, 2> gradients;
  for (int o = 0; o < record.output_count; ++o) {
    const TapedView& view = record.output(o);
    NDArray gradient;
    if (view.slot != TapedView::kNoSlot) {
      FreeView once;
      once.SetPlace(view);
      once.DropRepeats();
      gradient = shadows_.Take(once, ElementsOf(view)).gradient;
      // The sum of all that have read the element: each of its names gets its part.
      if (const int64_t repeats = view.Repeats(); repeats > 1 && gradient.is_defined())
        gradient = (gradient / static_cast<double>(repeats)).BroadcastTo(view.shape()).Dup();
    }
    *any = *any || gradient.is_defined();
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

void GradientTape::Recorder::BackThroughCall(TapeRecord& record, bool keep) {
  bool any = false;
  task_.Clear();
  const bool at_places = record.earlier == EarlierValues::kAreOverwrittenAtPlaces;
  if (!at_places) BackToEarlierValues(record, keep);
  for (int o = 0; o < record.output_count; ++o) {
    TapedView& view = record.output(o);
    NDArray gradient;
    if (view.slot != TapedView::kNoSlot) {
      if (record.earlier != EarlierValues::kAreOverwritten) {
        gradient = shadows_.Peek(view, ElementsOf(view));
      } else {
        GradientPiece piece = shadows_.Take(view, ElementsOf(view));
        gradient = std::move(piece.gradient);
        if (o == 0) task_.relu_done = piece.relu_done;
      }
    }
    any = any || gradient.is_defined();
    task_.output_gradients.push_back(std::move(gradient));
  }
  if (at_places) BackToEarlierValues(record, keep);  // what is taken away there is the updates'
  if (!any || record.plan == nullptr) return task_.Clear();
  const OperatorInfo& info = Info(record.op);
  for (int o = 0; o < record.output_count; ++o) {
    if (!task_.output_gradients[static_cast<size_t>(o)].is_defined() ||
        (record.plan->flows >> o & 1) != 0 || record.plan->kind == GradientPlan::Kind::kUnwritten) {
      continue;
    }
    ThrowUnimplemented(absl::StrCat("gradient tape: Op [", info.name,
                                    "]: a gradient of its output ", OperandName(info.outputs, o),
                                    " is in the way, from which none is computed"));
  }
  WatchedArray* watched[kMostInputs] = {};
  for (int i = 0; i < record.input_count && i < kMostInputs; ++i) {
    if ((record.wanted & InputBit(i)) != 0) watched[i] = FindWatched(record.view(i));
    // It was watched later: what this call adds is not of its gradient.
    if (watched[i] != nullptr && watched[i]->is_final) watched[i] = nullptr;
  }
  if (record.relu_before && !keep) ReleaseBeforeRelu(record);
  FillTask(record, keep, watched);
  NDArray whole = PlaceParts(record);
  try {
    task_.Run(*record.plan);
  } catch (Error& error) {
    error.AddContext(absl::StrCat("gradient of Op [", info.name, "]"));
    throw;
  }
  task_.inputs.clear();
  task_.outputs.clear();
  task_.output_gradients.clear();
  if (whole.is_defined()) TakeParts(record, std::move(whole));
  for (int i = 0; i < record.input_count; ++i) {
    NDArray& result = task_.results[static_cast<size_t>(i)];
    TapedView& view = record.view(i);
    if (!result.is_defined() || view.slot == TapedView::kNoSlot) continue;
    const WatchedArray* const own = i < kMostInputs ? watched[i] : nullptr;
    shadows_.Add(view, ElementsOf(view), std::move(result), record.relu_before,
                 own != nullptr && !own->adds && own->destination.array.is_defined()
                     ? &own->destination.array
                     : nullptr);
  }
  task_.Clear();
}

// What the call with the ReLU keeps for it: nobody but the pooling right behind it has read that, whose gradient goes through the
// ReLU, so that it may be written over.
void GradientTape::Recorder::ReleaseBeforeRelu(TapeRecord& pooling) {
  const TapedView& input = pooling.view(0);
  TapeRecord* const before = pooling.previous;
  if (before == nullptr || before != slots_[input.slot].ends_with_relu || shadows_.Has(input))
    return;
  TapedView& kept = before->output(0);
  if (kept.away != TapedView::kHere || !kept.IsSame(input)) return;
  kept.buffer.Reset();
}

void GradientTape::Recorder::FillTask(TapeRecord& record, bool keep,
                                      WatchedArray* const* watched_inputs) {
  task_.op = record.op;
  task_.attributes = record.attributes;
  task_.wanted = record.wanted;
  task_.is_strict = true;
  task_.relu_after = record.relu_before;
  const OperandSet needs = record.needs;
  for (int v = 0; v < record.input_count + record.output_count; ++v) {
    TapedView& view = record.view(v);
    const bool is_input = v < record.input_count;
    std::vector<NDArray>& to = is_input ? task_.inputs : task_.outputs;
    if (!view.present()) {
      to.emplace_back();
      continue;
    }
    const bool is_kept =
        (needs & (is_input ? InputBit(v) : OutputBit(v - record.input_count))) != 0;
    if (!is_input && v == record.input_count && task_.relu_done &&
        EndsWithRelu(record.op, record.attributes)) {
      if (!keep) view.buffer.Reset();  // the gradient has come through the ReLU already
      to.push_back(ShapeOnlyArray(view.shape(), view.dtype, view.device));
    } else {
      to.push_back(is_kept ? Recalled(record, view, keep, v)
                           : ShapeOnlyArray(view.shape(), view.dtype, view.device));
    }
  }
  task_.results.resize(static_cast<size_t>(record.input_count));  // it was cleared
  task_.may_write_over = !is_recorded_;
  if (is_recorded_) return;  // and results are copied to where they are wanted
  for (int i = 0; i < record.input_count && i < kMostInputs; ++i) {
    const TapedView& view = record.view(i);
    const WatchedArray* const watched = watched_inputs[i];
    if (watched == nullptr || watched->adds || !watched->destination.array.is_defined() ||
        shadows_.Has(view))
      continue;
    bool shared = false;
    for (const NDArray& dz : task_.output_gradients)
      shared = shared || ShareMemory(dz, watched->destination.array);
    for (const NDArray& other : task_.results)
      shared = shared || ShareMemory(other, watched->destination.array);
    // Kernels are not done over what they read, but for some of the very same view.
    for (int v = 0; MayLieOverKept() && v < record.input_count + record.output_count; ++v) {
      const bool is_input = v < record.input_count;
      const int o = v - record.input_count;
      if ((needs & (is_input ? InputBit(v) : OutputBit(o))) == 0) continue;
      const NDArray& read =
          is_input ? task_.inputs[static_cast<size_t>(v)] : task_.outputs[static_cast<size_t>(o)];
      shared = shared || ShareMemory(read, watched->destination.array);
    }
    if (!shared) task_.results[static_cast<size_t>(i)] = watched->destination.array;
  }
}

void GradientTape::Recorder::BackThroughFunction(TapeRecord& record, bool keep) {
  bool any = false;
  absl::InlinedVector<NDArray, 2> gradients = TakeGradients(record, &any);
  if (!any) return;
  const std::string& name = record.extra->name;
  if (!record.extra->backward) {
    ThrowUnimplemented(
        absl::StrCat("gradient tape: Op [", name, "]: it has no gradient, and one flows to it"));
  }
  absl::InlinedVector<NDArray, 6> found(record.input_count);
  if (record.kept_count > 0) {
    int v = record.input_count + record.output_count;
    record.extra->backward->VisitKept([&](const char*, NDArray& array, bool) {
      TapedView& view = record.view(v);
      if (view.present()) array = Recalled(record, view, keep, v);
      ++v;
    });
  }
  {
    // A tape that keeps what it recorded, or has another around it, has one as well.
    const CallRecorder::Backward backward =
        keep ? record.extra->backward : std::move(record.extra->backward);
    const absl::Cleanup leave = [before = std::exchange(function_under_way, &record)] {
      function_under_way = before;
    };
    backward->Run(gradients, absl::MakeSpan(found), /*is_last=*/backward.is_only());
  }
  gradients.clear();
  for (int i = 0; i < record.input_count; ++i) {
    TapedView& view = record.view(i);
    NDArray& gradient = found[static_cast<size_t>(i)];
    if (view.slot == TapedView::kNoSlot || !gradient.is_defined()) continue;
    if (!(gradient.shape() == view.shape()) || gradient.dtype() != view.dtype ||
        gradient.device() != view.device) {
      ThrowInvalidArgument(absl::StrCat(
          "gradient tape: Op [", name, "]: the gradient of input ", i, " is ", Described(gradient),
          " on ", DeviceName(gradient.device()), ", expected ", DTypeName(view.dtype), " ",
          view.shape().ToString(), " on ", DeviceName(view.device)));
    }
    gradient.CheckAlive(name.c_str(), "gradient");
    shadows_.Add(view, ElementsOf(view), std::move(gradient));
  }
}

}  // namespace tidepool
