#include "tidepool/ndarray/gradient/shadow_memory.h"

#include <iterator>
#include <utility>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/places.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/repeated_places.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// Nobody else has a handle, and every element is one place.
bool IsSpare(const NDArray& array) {
  const Buffer* const buffer = array.buffer().get();
  return buffer != nullptr && buffer->references.load(std::memory_order_acquire) == 1 &&
         !buffer->imported && !MayRepeat(array);
}

// Over one of them where that may be.
NDArray SumOf(NDArray a, NDArray b, bool into_a, bool may_write_over) {
  if (into_a || (may_write_over && IsSpare(a))) {
    AddInto(a, b, a);
    return a;
  }
  if (may_write_over && IsSpare(b)) {
    AddInto(b, a, b);
    return b;
  }
  return a + b;
}

// Elements along axes of stride 0 are one: their gradients are added up.
NDArray SumOfRepeated(TapedView& view, const NDArray& gradient) {
  int axes[kMaxRank];
  size_t count = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (view.strides()[i] == 0 && view.dims()[i] > 1) axes[count++] = i;
  }
  const absl::Span<const int> repeated(axes, count);
  for (const int axis : repeated) view.dims()[axis] = 1;
  return Sum(gradient, repeated, /*keep_dims=*/true);
}

// Of strides, from elsewhere, by which elements have more than one index: windows that overlap.
bool HasWindows(const TapedView& view) {
  return !view.IsDense() && MayRepeat(view.rank, view.dims(), view.strides());
}

// Adds, to a view that has windows, a slice of its shortest axis at a time: those of which none has any.
void AddToWindows(const NDArray& to, const NDArray& gradient) {
  if (!MayRepeat(to)) {
    NDArray part = to;
    AddInto(part, gradient, part);
    return;
  }
  int axis = -1;
  for (int i = 0; i < to.rank(); ++i) {
    if (to.dim(i) > 1 && (axis < 0 || to.dim(i) < to.dim(axis))) axis = i;
  }
  for (int64_t i = 0; i < to.dim(axis); ++i)
    AddToWindows(to.Index(axis, i), gradient.Index(axis, i));
}

// All from the view's first to its last element as one axis, 0 where it has none.
NDArray SumOfWindows(TapedView& view, const NDArray& gradient) {
  FreeView all;
  all.SetPlace(view);
  const auto [begin, end] = view.Extent();
  all.first = begin;
  all.rank = 1;
  all.dims()[0] = end - begin;
  all.strides()[0] = 1;
  NDArray sum = Zeros({end - begin}, gradient.dtype(), Place::CurrentOn(gradient.device()));
  AddToWindows(view.In(sum.buffer(), FirstElementOf(sum) - begin), gradient);
  view.SetPlace(all);
  return sum;
}

// A copy whose elements lie as they do here: kernels may sum in another order where they lie otherwise.
NDArray CopyOf(const NDArray& array, const Place& place) {
  if (array.is_dense()) return array.CopyTo(place);
  FreeView whole;
  whole.rank = 1;
  whole.dtype = array.dtype();
  whole.device = array.device();
  whole.dims()[0] = static_cast<int64_t>(array.buffer()->bytes / DTypeBytes(array.dtype()));
  whole.strides()[0] = 1;
  return FreeView(array).In(whole.In(array.buffer()).CopyTo(place).buffer());
}

// Every element of the buffer: views of gradients do not repeat any.
bool Covers(const TapedView& view, int64_t elements) { return view.count() == elements; }

}  // namespace

NDArray ShadowMemory::PartOf(const NDArray& whole, const TapedView& view) {
  return view.In(whole.buffer(), FirstElementOf(whole));
}

void ShadowMemory::DeadParts::Add(const TapedView& view) {
  if (used_ == parts_.size()) parts_.push_back(std::make_unique<Part>());
  Part& part = *parts_[used_];
  part.view.SetPlace(view);
  part.where = Places(view);
  part.number = used_;
  index_.Add(part);
  ++used_;
  elements_ += view.count();
}

void ShadowMemory::DeadParts::Remove(Part& part) {
  index_.Remove(part);
  elements_ -= part.view.count();
  std::unique_ptr<Part>& last = parts_[--used_];
  last->number = part.number;
  std::swap(parts_[part.number], last);
}

void ShadowMemory::DeadParts::Clear() {
  index_.Clear();
  used_ = 0;
  elements_ = 0;
}

void ShadowMemory::SetWhole(uint32_t slot, NDArray whole) {
  if (shadows_.size() <= slot) shadows_.resize(slot + 1);
  is_clear_ = false;
  shadows_[slot].dead.Clear();
  shadows_[slot].full = std::move(whole);
}

ShadowMemory::Pieces::iterator ShadowMemory::FindPiece(Shadow& shadow, const TapedView& view,
                                                       bool* overlaps) {
  const auto [begin, end] = view.Extent();
  *overlaps = false;
  auto at = shadow.pieces.lower_bound(begin);
  if (at != shadow.pieces.end() && at->first == begin &&
      (at->second.where.IsSame(view) || at->second.where.IsSameBlock(view))) {
    return at;
  }
  *overlaps = (at != shadow.pieces.end() && at->first < end) ||
              (at != shadow.pieces.begin() && std::prev(at)->second.where.Extent().second > begin);
  return shadow.pieces.end();
}

void ShadowMemory::MakeFull(Shadow& shadow, int64_t elements) {
  const NDArray& first = shadow.pieces.begin()->second.gradient;
  const Place place = Place::CurrentOn(first.device());
  const bool covers =
      shadow.pieces.size() == 1 && Covers(shadow.pieces.begin()->second.where, elements);
  try {
    shadow.full = covers ? NDArray({elements}, first.dtype(), place)
                         : Zeros({elements}, first.dtype(), place);
    for (const auto& [begin, piece] : shadow.pieces) {
      NDArray view = ViewOfFull(shadow, piece.where);
      CopyInto(piece.gradient, view);
    }
  } catch (...) {
    shadow.full = NDArray();
    throw;
  }
  while (!shadow.pieces.empty()) Erase(shadow, shadow.pieces.begin());
  shadow.dead.Clear();
}

ShadowMemory::Piece& ShadowMemory::NewPiece(Shadow& shadow, int64_t begin) {
  if (spare_.empty()) {
    spare_.reserve(spare_.capacity() + 1);  // Erase() cannot fail
    return shadow.pieces[begin];
  }
  spare_.back().key() = begin;
  const auto inserted = shadow.pieces.insert(std::move(spare_.back()));
  spare_.pop_back();
  return inserted.position->second;
}

void ShadowMemory::Erase(Shadow& shadow, Pieces::iterator piece) {
  Pieces::node_type node = shadow.pieces.extract(piece);
  Piece& gone = node.mapped();
  gone.gradient = NDArray();
  gone.relu_done = gone.is_own = false;
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(node));
}

void ShadowMemory::Revive(Shadow& shadow, const TapedView& view) {
  const Places where(view);
  while (DeadParts::Part* const dead = shadow.dead.Find(where)) {
    // Who took the part may be reading it.
    if (!may_write_over_ || !IsSpare(shadow.full)) shadow.full = shadow.full.Dup();
    NDArray part = ViewOfFull(shadow, dead->view);
    FillInto(0, part);
    shadow.dead.Remove(*dead);
  }
}

void ShadowMemory::Add(const TapedView& of, int64_t elements, NDArray gradient, bool relu_done,
                       const NDArray* own) {
  // Nothing comes of it, and it may be on any device.
  if (of.count() == 0) return;
  FreeView summed;
  if (of.Repeats() > 1) {
    summed.SetPlace(of);
    gradient = SumOfRepeated(summed, gradient);
  }
  if (HasWindows(summed.present() ? summed : of)) {
    if (!summed.present()) summed.SetPlace(of);
    gradient = SumOfWindows(summed, gradient);
  }
  const TapedView& view = summed.present() ? summed : of;
  if (shadows_.size() <= view.slot) shadows_.resize(view.slot + 1);
  is_clear_ = false;
  Shadow& shadow = shadows_[view.slot];
  if (!shadow.full.is_defined()) {
    bool overlaps = false;
    if (const auto at = FindPiece(shadow, view, &overlaps); at != shadow.pieces.end()) {
      Piece& piece = at->second;
      if (!piece.where.IsSame(view)) gradient = gradient.ReshapeOrCopy(piece.where.shape());
      piece.relu_done = piece.relu_done && relu_done;
      piece.gradient =
          SumOf(std::move(piece.gradient), std::move(gradient), piece.is_own, may_write_over_);
      return;
    }
    if (!overlaps) {
      Piece& piece = NewPiece(shadow, view.Extent().first);
      piece.where.SetPlace(view);
      piece.relu_done = relu_done;
      piece.is_own = own != nullptr && own->raw_data() == gradient.raw_data();
      piece.gradient = std::move(gradient);
      return;
    }
    MakeFull(shadow, elements);
  }
  Revive(shadow, view);
  NDArray part = ViewOfFull(shadow, view);
  // What was taken from between its elements: operators do not tell all such apart.
  if (ViewsOverlap(part, gradient)) gradient = gradient.Dup();
  AddInto(part, gradient, part);
}

GradientPiece ShadowMemory::Take(const TapedView& view, int64_t elements) {
  Shadow* const shadow = Find(view.slot);
  if (shadow == nullptr || shadow->IsEmpty() || view.count() == 0) return {};
  if (!shadow->full.is_defined()) {
    bool overlaps = false;
    if (const auto at = FindPiece(*shadow, view, &overlaps); at != shadow->pieces.end()) {
      GradientPiece taken{std::move(at->second.gradient), at->second.relu_done};
      const bool same = at->second.where.IsSame(view);
      Erase(*shadow, at);
      if (!same) taken.gradient = taken.gradient.ReshapeOrCopy(view.shape());
      return taken;
    }
    if (!overlaps) return {};
    // All of it in another order of axes, as heads that were written side by side: the same memory, seen so.
    if (Piece& only = shadow->pieces.begin()->second;
        Covers(view, elements) && Covers(only.where, elements) && only.where.IsDense() &&
        only.gradient.is_dense()) {
      const NDArray whole = only.gradient.Reshape({elements});
      Erase(*shadow, shadow->pieces.begin());
      return {PartOf(whole, view), false};
    }
    MakeFull(*shadow, elements);
  }
  Revive(*shadow, view);
  NDArray part = ViewOfFull(*shadow, view);
  if (Covers(view, elements)) {
    shadow->full = NDArray();
    shadow->dead.Clear();
  } else {
    shadow->dead.Add(view);  // what overlapped it was revived
    if (shadow->dead.elements() >= elements) {
      shadow->full = NDArray();
      shadow->dead.Clear();
    }
  }
  return {std::move(part), false};
}

NDArray ShadowMemory::Peek(const TapedView& view, int64_t elements, bool is_final) {
  Shadow* const shadow = Find(view.slot);
  if (shadow == nullptr || shadow->IsEmpty() || view.count() == 0) return {};
  if (!shadow->full.is_defined()) {
    bool overlaps = false;
    if (const auto at = FindPiece(*shadow, view, &overlaps); at != shadow->pieces.end()) {
      if (is_final) at->second.is_own = false;
      return at->second.gradient.ReshapeOrCopy(view.shape());
    }
    if (!overlaps) return {};
    MakeFull(*shadow, elements);
  }
  Revive(*shadow, view);
  return ViewOfFull(*shadow, view).Dup();
}

bool ShadowMemory::Has(const TapedView& view) {
  Shadow* const shadow = Find(view.slot);
  if (shadow == nullptr) return false;
  bool overlaps = shadow->full.is_defined();
  return overlaps || FindPiece(*shadow, view, &overlaps) != shadow->pieces.end() || overlaps;
}

void ShadowMemory::MoveOutOfPart(BackwardPlacement& placement) {
  const auto move = [&](NDArray& gradient) {
    if (gradient.is_defined() && gradient.buffer() && placement.IsOfPart(gradient)) {
      gradient = CopyOf(gradient, placement.PlaceOfOthers());
    }
  };
  for (Shadow& shadow : shadows_) {
    for (auto& [begin, piece] : shadow.pieces) move(piece.gradient);
    move(shadow.full);
  }
}

int64_t ShadowMemory::compared() const {
  int64_t compared = 0;
  for (const Shadow& shadow : shadows_) compared += shadow.dead.compared();
  return compared;
}

void ShadowMemory::Clear() {
  if (is_clear_) return;
  for (Shadow& shadow : shadows_) {
    while (!shadow.pieces.empty()) Erase(shadow, shadow.pieces.begin());
    shadow.full = NDArray();
    shadow.dead.Clear();  // whose memory is for the next step
  }
  is_clear_ = true;
}

}  // namespace tidepool
