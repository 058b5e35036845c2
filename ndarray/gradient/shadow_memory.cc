#include "tidepool/ndarray/gradient/shadow_memory.h"

#include <utility>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// Nobody else has a handle, and every element is one place.
bool MayBeWritten(const NDArray& array) {
  const Buffer* const buffer = array.buffer().get();
  return buffer != nullptr && buffer->references.load(std::memory_order_acquire) == 1 && !buffer->imported &&
         !MayRepeat(array);
}

// Over one of them where that may be.
NDArray SumOf(NDArray a, NDArray b, bool into_a) {
  if (into_a || MayBeWritten(a)) {
    AddInto(a, b, a);
    return a;
  }
  if (MayBeWritten(b)) {
    AddInto(b, a, b);
    return b;
  }
  return a + b;
}

// Elements along axes of stride 0 are one: their gradients are added up.
NDArray SumOfRepeated(TapedView& view, NDArray gradient) {
  std::vector<int> axes;
  for (int i = 0; i < view.rank; ++i) {
    if (view.strides[i] == 0 && view.dims[i] > 1) axes.push_back(i);
  }
  if (axes.empty()) return gradient;
  for (const int axis : axes) view.dims[axis] = 1;
  return Sum(gradient, axes, /*keep_dims=*/true);
}

bool Covers(const TapedView& view, const NDArray& as_array, int64_t elements) {
  return view.count() == elements && !MayRepeat(as_array);
}

}  // namespace

NDArray ShadowMemory::ViewOfFull(const Shadow& shadow, const TapedView& view) {
  const NDArray& full = shadow.full;
  const int64_t begin =
      (full.raw_data() - full.buffer()->data) / static_cast<int64_t>(DTypeBytes(full.dtype()));
  return view.In(full.buffer(), begin);
}

void ShadowMemory::MakeFull(Shadow& shadow, int64_t elements) {
  NDArray piece = std::exchange(shadow.piece, NDArray());
  const Place place = Place::CurrentOn(piece.device());
  const bool covers = Covers(shadow.where, piece, elements);
  try {
    shadow.full = covers ? NDArray({elements}, piece.dtype(), place) : Zeros({elements}, piece.dtype(), place);
    NDArray view = ViewOfFull(shadow, shadow.where);
    CopyInto(piece, view);
  } catch (...) {
    shadow.full = NDArray();
    throw;
  }
  shadow.dead.clear();
  shadow.relu_done = shadow.is_own = false;
}

void ShadowMemory::Revive(Shadow& shadow, const TapedView& view) {
  for (size_t i = 0; i < shadow.dead.size();) {
    if (!shadow.dead[i].MayOverlap(view)) {
      ++i;
      continue;
    }
    // Who took the part may be reading it.
    if (!MayBeWritten(shadow.full)) shadow.full = shadow.full.Dup();
    NDArray part = ViewOfFull(shadow, shadow.dead[i]);
    FillInto(0, part);
    shadow.dead.erase(shadow.dead.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void ShadowMemory::Add(const TapedView& of, int64_t elements, NDArray gradient, bool relu_done, const NDArray* own) {
  TapedView view;
  view = of;
  view.buffer.Reset();
  gradient = SumOfRepeated(view, std::move(gradient));
  if (shadows_.size() <= view.slot) shadows_.resize(view.slot + 1);
  Shadow& shadow = shadows_[view.slot];
  if (shadow.IsEmpty()) {
    shadow.where = std::move(view);
    shadow.is_own = own != nullptr && own->raw_data() == gradient.raw_data();
    shadow.piece = std::move(gradient);
    shadow.relu_done = relu_done;
    return;
  }
  if (shadow.piece.is_defined()) {
    const bool same = shadow.where.IsSame(view);
    if (same || shadow.where.IsSameBlock(view)) {
      if (!same) gradient = gradient.ReshapeOrCopy(shadow.where.shape());
      shadow.relu_done = shadow.relu_done && relu_done;
      shadow.piece = SumOf(std::move(shadow.piece), std::move(gradient), shadow.is_own);
      return;
    }
    MakeFull(shadow, elements);
  }
  Revive(shadow, view);
  NDArray part = ViewOfFull(shadow, view);
  AddInto(part, gradient, part);
}

GradientPiece ShadowMemory::Take(const TapedView& view, int64_t elements) {
  Shadow* const shadow = Find(view.slot);
  if (shadow == nullptr || shadow->IsEmpty()) return {};
  if (shadow->piece.is_defined()) {
    if (shadow->where.IsSame(view)) return {std::exchange(shadow->piece, NDArray()), shadow->relu_done};
    if (shadow->where.IsSameBlock(view)) {
      return {std::exchange(shadow->piece, NDArray()).ReshapeOrCopy(view.shape()), shadow->relu_done};
    }
    if (!shadow->where.MayOverlap(view)) return {};
    MakeFull(*shadow, elements);
  }
  Revive(*shadow, view);
  NDArray part = ViewOfFull(*shadow, view);
  if (Covers(view, part, elements)) {
    shadow->full = NDArray();
    shadow->dead.clear();
  } else {
    shadow->dead.push_back(view);
    shadow->dead.back().buffer.Reset();
    int64_t taken = 0;  // parts are apart: what overlaps was revived
    for (const TapedView& dead : shadow->dead) taken += dead.count();
    if (taken >= elements) {
      shadow->full = NDArray();
      shadow->dead.clear();
    }
  }
  return {std::move(part), false};
}

NDArray ShadowMemory::Peek(const TapedView& view, int64_t elements) {
  Shadow* const shadow = Find(view.slot);
  if (shadow == nullptr || shadow->IsEmpty()) return {};
  if (shadow->piece.is_defined()) {
    if (shadow->where.IsSame(view)) return shadow->piece;
    if (shadow->where.IsSameBlock(view)) return shadow->piece.ReshapeOrCopy(view.shape());
    if (!shadow->where.MayOverlap(view)) return {};
    MakeFull(*shadow, elements);
  }
  Revive(*shadow, view);
  return ViewOfFull(*shadow, view).Dup();
}

bool ShadowMemory::Has(const TapedView& view) const {
  if (view.slot >= shadows_.size()) return false;
  const Shadow& shadow = shadows_[view.slot];
  return shadow.full.is_defined() || (shadow.piece.is_defined() && shadow.where.MayOverlap(view));
}

void ShadowMemory::Clear() { shadows_.clear(); }

}  // namespace tidepool
