// Inputs that make up a buffer: query, key and value of one product, halves of gates.
#include <algorithm>
#include <utility>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

bool HaveSameStrides(const TapedView& a, const TapedView& b) {
  return a.rank == b.rank && a.dtype == b.dtype &&
         std::equal(a.strides(), a.strides() + a.rank, b.strides());
}

// Where a result is to lie and does not.
bool IsElsewhere(const NDArray& result, const NDArray& part) {
  return result.raw_data() != part.raw_data() ||
         !std::equal(result.strides(), result.strides() + result.rank(), part.strides());
}

}  // namespace

NDArray GradientTape::Recorder::PlaceParts(const TapeRecord& record) {
  const TapedView& first = record.view(0);
  if (is_recorded_ || record.plan->kind != GradientPlan::Kind::kRules || record.input_count < 2 ||
      record.input_count > kMostInputs || !first.present() || first.slot == TapedView::kNoSlot ||
      slots_[first.slot].watched != 0 || !shadows_.IsEmpty(first.slot)) {
    return {};
  }
  const int64_t elements = ElementsOf(first);
  int64_t together = 0;
  OperandSet parts = 0;
  for (int i = 0; i < record.input_count; ++i) {
    const TapedView& view = record.view(i);
    if (!view.present() || view.slot != first.slot) continue;
    if ((record.wanted & InputBit(i)) == 0 || !HaveSameStrides(view, first)) return {};
    together += view.count();
    parts |= InputBit(i);
  }
  if (parts == InputBit(0) || together != elements) return {};
  NDArray whole({elements}, first.dtype, Place::CurrentOn(first.device));
  for (int i = 0; i < record.input_count; ++i) {
    if ((parts & InputBit(i)) == 0) continue;
    const NDArray part = ShadowMemory::PartOf(whole, record.view(i));
    bool is_apart = !MayRepeat(part);
    for (int other = 0; other < i; ++other) {
      if ((parts & InputBit(other)) != 0)
        is_apart = is_apart && !ViewsOverlap(part, task_.results[static_cast<size_t>(other)]);
    }
    if (!is_apart) {
      for (int other = 0; other < i; ++other) {
        if ((parts & InputBit(other)) != 0) task_.results[static_cast<size_t>(other)] = NDArray();
      }
      return {};
    }
    task_.results[static_cast<size_t>(i)] = part;
  }
  return whole;
}

void GradientTape::Recorder::TakeParts(const TapeRecord& record, NDArray whole) {
  const uint32_t slot = record.view(0).slot;
  for (int i = 0; i < record.input_count; ++i) {
    if (!record.view(i).present() || record.view(i).slot != slot) continue;
    NDArray part = ShadowMemory::PartOf(whole, record.view(i));
    NDArray& result = task_.results[static_cast<size_t>(i)];
    if (!result.is_defined()) {
      FillInto(0, part);
    } else if (IsElsewhere(result, part)) {
      CopyInto(result, part);
    }
    result = NDArray();
  }
  shadows_.SetWhole(slot, std::move(whole));
}

}  // namespace tidepool
