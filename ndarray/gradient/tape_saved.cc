// What a tape keeps, for reports and for who has it wait elsewhere.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"

namespace tidepool {

void GradientTape::Recorder::VisitKept(absl::FunctionRef<void(const BufferHandle&)> visit) {
  kept_.Visit(records_, [&](const BufferHandle& buffer) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      const uint32_t slot = slots_.Find(buffer->id, dtype);
      if (slot != TapedView::kNoSlot && !slots_[slot].watched.empty()) return;
    }
    visit(buffer);
  });
}

void GradientTape::Recorder::VisitRemakeable(int part,
                                             absl::FunctionRef<bool(const BufferHandle&)> goes) {
  for (TapeRecord* record = records_.last(); record != nullptr && record->part == part;
       record = record->previous) {
    if (record->kept_count == 0) continue;
    TapedView* view = record->kept().data();
    record->extra->backward->VisitKept([&](const char*, NDArray&, bool can_be_made_again) {
      if (can_be_made_again && view->buffer && goes(view->buffer)) {
        view->buffer.Reset();
        view->present = false;
      }
      ++view;
    });
  }
}

std::vector<SavedArray> GradientTape::Recorder::Saved() const {
  std::vector<SavedArray> saved;
  std::set<uint64_t> seen;
  std::vector<TapeRecord*> in_order;
  for (TapeRecord* record = records_.last(); record != nullptr; record = record->previous)
    in_order.push_back(record);
  std::reverse(in_order.begin(), in_order.end());
  for (TapeRecord* const record : in_order) {
    for (int v = 0; v < record->view_count(); ++v) {
      const TapedView& view = record->views[v];
      if (!view.buffer || !seen.insert(view.buffer->id).second) continue;
      saved.push_back({record->name(), record->OperandText(v),
                       absl::StrCat(DTypeName(view.dtype), " ", view.shape().ToString()),
                       static_cast<int64_t>(view.buffer->bytes)});
    }
  }
  return saved;
}

}  // namespace tidepool
