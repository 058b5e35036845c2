#include "tidepool/ndarray/gradient/kept_arrays.h"

#include <algorithm>
#include <utility>

namespace tidepool {

void KeptArrays::Visit(const TapeRecords& records,
                       absl::FunctionRef<void(const BufferHandle&)> visit) {
  std::vector<TapeRecord*> fresh;
  for (TapeRecord* record = records.last(); record != visited_ && record != nullptr;
       record = record->previous) {
    fresh.push_back(record);
  }
  visited_ = records.last();
  std::vector<BufferHandle> seen;  // each once
  for (auto record = fresh.rbegin(); record != fresh.rend(); ++record) {
    for (int v = 0; v < (*record)->view_count(); ++v) {
      TapedView& view = (*record)->view(v);
      if (!view.buffer) continue;
      const auto [found, is_new] =
          numbers_.try_emplace(view.buffer->id, static_cast<int32_t>(kept_.size()));
      if (is_new) {
        kept_.emplace_back();
        kept_.back().buffer_id = view.buffer->id;
      }
      kept_[static_cast<size_t>(found->second)].views.push_back(&view);
      const bool again = std::any_of(seen.begin(), seen.end(), [&](const BufferHandle& other) {
        return other.get() == view.buffer.get();
      });
      if (!again) seen.push_back(view.buffer);
    }
  }
  for (const BufferHandle& buffer : seen) visit(buffer);
}

int KeptArrays::HandlesOf(uint64_t buffer_id) const {
  const auto found = numbers_.find(buffer_id);
  return found != numbers_.end()
             ? static_cast<int>(kept_[static_cast<size_t>(found->second)].views.size())
             : 0;
}

bool KeptArrays::Release(uint64_t buffer_id, int others, KeptArrayStore* store) {
  const auto found = numbers_.find(buffer_id);
  if (found == numbers_.end()) return false;
  Kept& kept = kept_[static_cast<size_t>(found->second)];
  if (kept.left > 0 || kept.views.empty()) return false;
  const Buffer& buffer = *kept.views[0]->buffer.get();
  if (buffer.references.load(std::memory_order_acquire) !=
      static_cast<int32_t>(kept.views.size()) + others)
    return false;
  const uint32_t version = buffer.version.load(std::memory_order_relaxed);
  for (const TapedView* const view : kept.views) {
    if (!view->guarded || view->version != version) return false;  // Backward() will say so
  }
  for (TapedView* const view : kept.views) {
    view->away = found->second;
    view->buffer.Reset();
  }
  kept.left = kept.views.size();
  kept.store = store;
  return true;
}

void KeptArrays::Bring(TapedView& view) {
  Kept& kept = kept_[static_cast<size_t>(view.away)];
  if (!kept.back) kept.back = kept.store->Bring(kept.buffer_id);
  view.buffer = kept.back;
  Leave(view);
}

// The last one lets go of it, so that who reads it may write over it as over any other.
void KeptArrays::Leave(TapedView& view) {
  Kept& kept = kept_[static_cast<size_t>(view.away)];
  view.away = TapedView::kHere;
  if (--kept.left > 0) return;
  if (!kept.back) return kept.store->Drop(kept.buffer_id);
  kept.back.Reset();
}

void KeptArrays::Forget(TapeRecord& record) {
  if (kept_.empty()) return;
  for (int v = 0; v < record.view_count(); ++v) {
    if (record.view(v).away != TapedView::kHere) Leave(record.view(v));
  }
}

void KeptArrays::Clear() {
  visited_ = nullptr;
  numbers_.clear();
  kept_.clear();
}

}  // namespace tidepool
