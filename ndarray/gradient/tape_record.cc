#include "tidepool/ndarray/gradient/tape_record.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {
namespace {

constexpr size_t kFirstChunk = 8 << 10, kLargestChunk = 256 << 10,
                 kAlignment = alignof(std::max_align_t);

constexpr size_t RoundUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::string TapeRecord::OperandText(int view) const {
  if (view >= input_count + output_count) {
    const char* text = "";
    int next = input_count + output_count;
    extra->backward->VisitKept([&](const char* what, NDArray&, bool) {
      if (next++ == view) text = what;
    });
    return text;
  }
  if (kind != Kind::kCall) return absl::StrCat("input ", view);
  if (view < input_count) return OperandName(Info(op).inputs, view);
  return OperandName(Info(op).outputs, view - input_count);
}

TapeRecord* TapeRecords::New(int inputs, int outputs, const void* attributes,
                             size_t attribute_bytes, int kept) {
  ForgetPending();
  const size_t views = static_cast<size_t>(inputs + outputs + kept);
  const size_t head = RoundUp(sizeof(TapeRecord)), middle = RoundUp(views * sizeof(TapedView));
  const size_t bytes = head + middle + RoundUp(attribute_bytes);
  if (chunks_.empty() || chunks_.back().buffer->bytes - chunks_.back().used < bytes) {
    const size_t grown =
        chunks_.empty() ? kFirstChunk : std::min(kLargestChunk, 2 * chunks_.back().buffer->bytes);
    chunks_.reserve(chunks_.size() + 1);
    if (spare_.buffer && spare_.buffer->bytes >= bytes) {
      chunks_.push_back(std::exchange(spare_, Chunk()));
    } else {
      const MemoryOwnerScope owner("gradient tape");
      chunks_.push_back({BufferHandle(NewHeapBuffer(std::max(grown, bytes), kHeapAlignment))});
    }
  }
  Chunk& chunk = chunks_.back();
  std::byte* const at = chunk.buffer->data + chunk.used;
  auto* const record = new (at) TapeRecord();
  record->input_count = static_cast<uint16_t>(inputs);
  record->output_count = static_cast<uint16_t>(outputs);
  record->kept_count = static_cast<uint16_t>(kept);
  record->views = reinterpret_cast<TapedView*>(at + head);
  for (size_t i = 0; i < views; ++i) new (record->views + i) TapedView();
  if (attribute_bytes > 0) {
    std::memcpy(at + head + middle, attributes, attribute_bytes);
    record->attributes = at + head + middle;
  }
  chunk.used += bytes;
  pending_ = record;
  return record;
}

void TapeRecords::Commit(TapeRecord* record) {
  record->previous = last_;
  record->part = part_;
  last_ = record;
  pending_ = nullptr;
  ++count_;
}

std::unique_ptr<TapeExtra> TapeRecords::NewExtra() {
  if (spare_extra_ == nullptr) return std::make_unique<TapeExtra>();
  std::unique_ptr<TapeExtra> extra = std::move(spare_extra_);
  spare_extra_ = std::move(extra->next);
  return extra;
}

void TapeRecords::Destroy(TapeRecord* record) {
  if (record->extra != nullptr) {
    record->extra->Clear();
    record->extra->next = std::move(spare_extra_);
    spare_extra_ = std::move(record->extra);
  }
  std::destroy_n(record->views, record->view_count());
  std::destroy_at(record);
}

void TapeRecords::ForgetPending() {
  if (TapeRecord* const record = std::exchange(pending_, nullptr)) {
    Destroy(record);
    chunks_.back().used =
        static_cast<size_t>(reinterpret_cast<std::byte*>(record) - chunks_.back().buffer->data);
  }
}

// What took several chunks takes the largest of them next time, and soon one.
void TapeRecords::DropChunk() {
  Chunk& chunk = chunks_.back();
  chunk.used = 0;
  if (!spare_.buffer || spare_.buffer->bytes < chunk.buffer->bytes) std::swap(spare_, chunk);
  chunks_.pop_back();
}

void TapeRecords::Drop() {
  ForgetPending();
  TapeRecord* const record = last_;
  last_ = record->previous;
  --count_;
  auto* const at = reinterpret_cast<std::byte*>(record);
  Destroy(record);
  // Records of segments that run again take its place.
  while (!chunks_.empty()) {
    Chunk& chunk = chunks_.back();
    std::byte* const begin = chunk.buffer->data;
    if (at >= begin && at < begin + chunk.buffer->bytes) {
      chunk.used = static_cast<size_t>(at - begin);
      break;
    }
    DropChunk();  // it is empty: what it held came later
  }
}

void TapeRecords::Clear() {
  ForgetPending();
  while (last_ != nullptr) {
    TapeRecord* const record = last_;
    last_ = record->previous;
    Destroy(record);
  }
  count_ = 0;
  while (!chunks_.empty()) DropChunk();
}

}  // namespace tidepool
