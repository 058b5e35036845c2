// What a tape is asked for gradients of: watched arrays, from Watch() to what was found.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

std::string Described(const NDArray& array) {
  return absl::StrCat(DTypeName(array.dtype()), " ", array.shape().ToString());
}

}  // namespace

WatchedArray* GradientTape::Recorder::FindWatched(const TapedView& view) const {
  if (view.slot == TapedView::kNoSlot) return nullptr;
  const WatchedInSlot* const of_slot = slots_.WatchedOf(view.slot);
  if (of_slot == nullptr) return nullptr;
  WatchedArray* const watched = of_slot->FindOverlapping(Places(view));
  return watched != nullptr && watched->view.IsSame(view) ? watched : nullptr;
}

void GradientTape::Recorder::Watch(const NDArray& x, const NDArray& gradient, GradientWrite write) {
  CheckThread("Watch");
  x.CheckAlive("watch", "X");
  if (state_ != State::kRecording) {
    ThrowFailedPrecondition(
        "gradient tape: Watch of an array when it no longer records, expected before Backward and "
        "Stop");
  }
  if (gradient.is_defined()) {
    gradient.CheckAlive("watch", "gradient");
    gradient.CheckWritable("watch");
  }
  if (watched_count_ < watched_before_ && WatchAgain(x, gradient, write)) return;
  watched_before_ = 0;
  if (watched_count_ == 0) destinations_checked_ = true;
  if (!IsFloating(x.dtype()) || x.NumElements() == 0 || MayRepeat(x)) {
    ThrowInvalidArgument(absl::StrCat(
        "gradient tape: Watch: found ", Described(x), MayRepeat(x) ? " whose elements repeat" : "",
        ", expected floats, at least one, each in a place of its own"));
  }
  if (gradient.is_defined()) {
    if (!(gradient.shape() == x.shape()) || gradient.dtype() != x.dtype() ||
        gradient.device() != x.device() || MayRepeat(gradient) || ViewsOverlap(gradient, x)) {
      ThrowInvalidArgument(absl::StrCat("gradient tape: Watch: the gradient is ",
                                        Described(gradient), " on ", DeviceName(gradient.device()),
                                        ViewsOverlap(gradient, x) ? " over X itself" : "",
                                        ", expected ", Described(x), " on ", DeviceName(x.device()),
                                        ", each element in a place of its own"));
    }
  }
  FreeView view(x);
  view.slot = slots_.FindOrAdd(*x.buffer().get(), x.dtype());
  WatchedInSlot& of_slot = slots_.AddWatchedOf(view.slot);
  const Places where(view);
  const WatchedArray* const other = of_slot.FindOverlapping(where);
  if (other != nullptr && other->view.IsSame(view)) {
    const WatchedArray& watched = *other;
    const bool is_new =
        gradient.is_defined() && (!watched.destination.array.is_defined() ||
                                  !FreeView(watched.destination.array).IsOf(gradient) ||
                                  watched.destination.array.raw_data() != gradient.raw_data() ||
                                  watched.adds != (write == GradientWrite::kAdd));
    if (!is_new) return;
    ThrowInvalidArgument(
        "gradient tape: Watch: the array is watched with another gradient already, expected one");
  }
  if (other != nullptr) {
    ThrowInvalidArgument(absl::StrCat(
        "gradient tape: Watch: found ", Described(x),
        ", a view whose memory overlaps that of another watched array, expected apart or the "
        "same"));
  }
  // Who is told when each gradient is final may have others come to lie there.
  Destination destination;
  destination.Set(gradient);
  if (listener_ == nullptr) {
    CheckDestination(destination);
  } else {
    destinations_checked_ = false;
  }
  destination.Clear();
  if (watched_count_ == watched_.size()) watched_.push_back(std::make_unique<WatchedArray>());
  WatchedArray& watched = *watched_[watched_count_];
  watched.buffer_id = x.buffer()->id;
  watched.view = view;
  watched.where = where;
  watched.adds = gradient.is_defined() && write == GradientWrite::kAdd;
  watched.destination.where = destination.where;
  watched.destination_buffer_id =
      gradient.is_defined() && gradient.buffer() ? gradient.buffer()->id : 0;
  if (watched.destination_buffer_id != 0) watched.destination_view.Set(gradient);
  AddWatched(gradient, view.slot);
}

bool GradientTape::Recorder::WatchAgain(const NDArray& x, const NDArray& gradient,
                                        GradientWrite write) {
  const WatchedArray& before = *watched_[watched_count_];
  const Buffer *const buffer = x.buffer().get(), *const to = gradient.buffer().get();
  if (buffer == nullptr || buffer->id != before.buffer_id || !before.view.IsOf(x) ||
      (to == nullptr && gradient.is_defined()) ||
      (!destinations_checked_ && listener_ == nullptr) ||
      (to != nullptr ? to->id : 0) != before.destination_buffer_id ||
      (to != nullptr && (!before.destination_view.IsOf(gradient) ||
                         before.adds != (write == GradientWrite::kAdd)))) {
    return false;
  }
  AddWatched(gradient, slots_.FindOrAdd(*buffer, x.dtype()));
  return true;
}

void GradientTape::Recorder::AddWatched(const NDArray& gradient, uint32_t slot) {
  WatchedArray& watched = *watched_[watched_count_];
  WatchedInSlot& of_slot = slots_.AddWatchedOf(slot);
  TapeRecord* const record = records_.New(0, 0, 0, nullptr, 0);
  of_slot.Add(watched);
  absl::Cleanup remove = [&] {
    of_slot.Remove(watched);
    watched.destination.Clear();
  };
  watched.destination.array = gradient;
  destinations_.Add(watched.destination);
  if (gradient.buffer()) destination_bits_ |= BitOf(*gradient.buffer().get());
  // Nothing fails from here on.
  std::move(remove).Cancel();
  watched.view.slot = slot;
  watched.is_computed = slots_[slot].computed != 0;
  watched.number = static_cast<int>(watched_count_++);
  watched.is_used = watched.is_final = false;
  watched.next_used = nullptr;
  record->kind = TapeRecord::Kind::kWatch;
  record->watched = &watched;
  records_.Commit(record);
}

void GradientTape::Recorder::CheckDestination(const Destination& of_gradient) {
  const Destination* const other = destinations_.Find(of_gradient);
  if (other == nullptr) return;
  const NDArray& gradient = of_gradient.array;
  ThrowInvalidArgument(absl::StrCat("gradient tape: Watch: the gradient, ", Described(gradient),
                                    ", shares memory with that of another watched array, of ",
                                    Described(other->array), "; expected an array for each"));
}

// Which of the calls so far was the first to read an array nobody has noted: it is final where it was watched.
void GradientTape::Recorder::set_listener(GradientListener* listener) {
  listener_ = listener;
  if (listener == nullptr || calls_ == 0) return;
  for (const auto& watched : Watched()) watched->is_used = true;
}

void GradientTape::Recorder::NoteUse(TapeRecord* record, const TapedView& view) {
  if (view.slot == TapedView::kNoSlot) return;
  const WatchedInSlot* const of_slot = slots_.WatchedOf(view.slot);
  if (of_slot == nullptr) return;
  of_slot->VisitOverlapping(Places(view), [&](WatchedArray& used) {
    if (used.is_used || used.is_computed) return false;
    used.is_used = true;
    used.next_used = record->watched;
    record->watched = &used;
    return false;
  });
}

void GradientTape::Recorder::NoteUseOfAll(TapeRecord* record) {
  for (const auto& watched : Watched()) NoteUse(record, watched->view);
}

void GradientTape::Recorder::NoteUsesToTell(TapeRecord* record) {
  // What a segment records when it runs again comes behind the segment itself.
  if (state_ != State::kRecording) return;
  for (int v = 0; v < record->input_count + record->output_count; ++v)
    NoteUse(record, record->view(v));
  if (record->kind == TapeRecord::Kind::kSegment) NoteUseOfAll(record);
}

void GradientTape::Recorder::FinishWatched(WatchedArray& watched) {
  const int64_t elements = ElementsOf(watched.view);
  NDArray gradient = watched.is_computed ? shadows_.Peek(watched.view, elements, /*is_final=*/true)
                                         : shadows_.Take(watched.view, elements).gradient;
  watched.is_final = true;
  NDArray& destination = watched.destination.array;
  if (!destination.is_defined()) {
    watched.gradient = std::move(gradient);
  } else {
    if (!gradient.is_defined()) {
      if (!watched.adds) FillInto(0, destination);
    } else if (watched.adds) {
      AddInto(destination, gradient, destination);
    } else if (gradient.raw_data() != destination.raw_data()) {
      CopyInto(gradient, destination);
    }
  }
  if (listener_ != nullptr) listener_->GradientIsFinal(watched.number);
}

// Whoever has a gradient may write to it: it is not that of another array too, nor what was handed in for an output.
void GradientTape::Recorder::SeparateResults() {
  shadows_.Clear();
  for (const auto& watched : Watched()) {
    NDArray& gradient = watched->gradient;
    if (!gradient.is_defined() || !gradient.buffer()) continue;
    if (gradient.buffer()->references.load(std::memory_order_acquire) > 1 || MayRepeat(gradient))
      gradient = gradient.Dup();
    Buffer& buffer = *gradient.buffer().get();
    if (!buffer.attached && !buffer.imported) SetBufferKind(buffer, MemoryKind::kGradientStandard);
  }
}

NDArray GradientTape::Recorder::Gradient(const NDArray& x) const {
  x.CheckAlive("gradient", "X");
  FreeView view(x);
  view.slot = SlotOf(x);
  const WatchedArray* const watched = FindWatched(view);
  if (watched == nullptr) {
    ThrowInvalidArgument(absl::StrCat("gradient tape: Gradient: ", Described(x),
                                      " is not watched, expected an array or view "
                                      "that Watch() was called with"));
  }
  if (state_ != State::kDone && state_ != State::kKept) {
    ThrowFailedPrecondition(state_ == State::kFailed
                                ? "gradient tape: Gradient after a Backward() that failed"
                                : "gradient tape: Gradient before Backward(), expected after it");
  }
  if (watched->destination.array.is_defined()) return watched->destination.array;
  if (watched->gradient.is_defined()) return watched->gradient;
  return Zeros(x.shape(), x.dtype(), Place::CurrentOn(x.device()));
}

}  // namespace tidepool
