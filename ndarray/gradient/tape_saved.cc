// What a tape keeps: for reports, for who has it wait elsewhere, and when its gradient reads it.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"

namespace tidepool {
namespace {

std::string CalledAt(const AllocationTrace* site) {
  return site != nullptr ? absl::StrCat(" (called at ", site->Site(), ")") : "";
}

}  // namespace

void GradientTape::Recorder::VisitKept(absl::FunctionRef<void(const BufferHandle&)> visit) {
  kept_.Visit(records_, [&](const BufferHandle& buffer) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      const uint32_t slot = slots_.Find(buffer->id, dtype);
      if (slot != TapedView::kNoSlot && slots_[slot].watched != 0) return;
    }
    visit(buffer);
  });
}

void GradientTape::Recorder::VisitRemakeable(int part,
                                             absl::FunctionRef<bool(const BufferHandle&)> goes) {
  for (TapeRecord* record = records_.last(); record != nullptr && record->part == part;
       record = record->previous) {
    if (record->kept_count == 0) continue;
    int k = 0;
    record->extra->backward->VisitKept([&](const char*, NDArray&, bool can_be_made_again) {
      TapedView& view = record->kept(k++);
      if (can_be_made_again && view.buffer && goes(view.buffer)) {
        view.buffer.Reset();
        view.rank = TapedView::kAbsent;
      }
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
      const TapedView& view = record->view(v);
      if (!view.buffer || !seen.insert(view.buffer->id).second) continue;
      saved.push_back({record->name(), record->OperandText(v),
                       absl::StrCat(DTypeName(view.dtype), " ", view.shape().ToString()),
                       static_cast<int64_t>(view.buffer->bytes)});
    }
  }
  return saved;
}

void GradientTape::Recorder::CheckUnchanged(const TapeRecord& record, const TapedView& view,
                                            int operand) const {
  if (view.buffer->closed.load(std::memory_order_relaxed) != Buffer::kNotClosed) return;
  if (!view.guarded) return CheckSharedUnchanged(record, view, operand);
  const uint32_t now = view.buffer->version.load(std::memory_order_relaxed);
  if (now == view.version || view.shape().NumElements() == 0)
    return;  // or nothing can be overwritten
  const Places where(view);
  uint32_t seen = 0;
  std::string writer;
  writes_.VisitBackwards(view.buffer->id, [&](size_t, const WriteLog::Write& write) {
    if (!write.IsLaterThan(view.version)) return false;
    ++seen;
    if (write.where.MayOverlap(where)) {
      writer = absl::StrCat(write.Text(), " overwrote it");
    }
    return true;
  });
  // Every write was to another part.
  if (writer.empty() && seen == now - view.version) return;
  if (writer.empty()) {
    writer =
        "something that is no operator of this thread's (mutable_data, HostView, MarkWritten, a "
        "NoGradientScope) overwrote it";
  }
  const AllocationTrace* const site = record.extra != nullptr ? record.extra->site.get() : nullptr;
  ThrowFailedPrecondition(
      absl::StrCat("gradient tape: Op [", record.name(), "]", CalledAt(site), " kept its ",
                   record.OperandText(operand), " (", DTypeName(view.dtype), " ",
                   view.shape().ToString(), ", version ", view.version, ") for its gradient, and ",
                   writer, " (version ", now, "); expected it unchanged until Backward()"));
}

void GradientTape::Recorder::CheckSharedUnchanged(const TapeRecord& record, const TapedView& view,
                                                  int operand) const {
  const Places where = Places(view).Shifted(AddressOf(*view.buffer.get()));
  const WriteLog::Write* first = nullptr;
  writes_.VisitBackwards(WriteLog::kSharedMemory, [&](size_t number, const WriteLog::Write& write) {
    if (number < view.version) return false;
    if (write.where.MayOverlap(where)) first = &write;
    return true;
  });
  if (first == nullptr) return;
  const AllocationTrace* const site = record.extra != nullptr ? record.extra->site.get() : nullptr;
  ThrowFailedPrecondition(absl::StrCat(
      "gradient tape: Op [", record.name(), "]", CalledAt(site), " kept its ",
      record.OperandText(operand), " (", DTypeName(view.dtype), " ", view.shape().ToString(),
      ") for its gradient, and ", first->Text(),
      " overwrote its memory, which was imported or exported; expected it unchanged until "
      "Backward()"));
}

NDArray GradientTape::Recorder::Recalled(const TapeRecord& record, TapedView& view, bool keep,
                                         int operand) {
  if (view.away != TapedView::kHere) kept_.Bring(view);
  if (!view.buffer) return NDArray(view.shape(), view.dtype);  // without elements
  CheckUnchanged(record, view, operand);
  NDArray array = view.In(keep ? view.buffer : std::move(view.buffer));
  // Texts are made where they are needed.
  if (!array.IsInScope())
    array.CheckAlive(absl::StrCat("gradient of ", record.name()).c_str(),
                     record.OperandText(operand).c_str());
  return array;
}

}  // namespace tidepool
