#include "tidepool/ndarray/gradient/tape_record.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/ndarray/gradient/spare_chunks.h"

namespace tidepool {
namespace {

constexpr size_t kAlignment = alignof(std::max_align_t);

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

TapeRecords::~TapeRecords() {
  Clear();
  while (spare_extra_ != nullptr) spare_extra_ = std::move(spare_extra_->next);
  for (Chunk& chunk : chunks_) {
    if (chunk.is_of_process && !is_kept_) LeaveSpareChunk(std::move(chunk.buffer));
  }
}

TapeRecords::Chunk TapeRecords::NewChunk(size_t bytes) const {
  const bool is_of_process = &MemoryOwner::Current() == &MemoryOwner::Process();
  if (is_of_process && !is_kept_) {
    if (BufferHandle spare = TakeSpareChunk(bytes)) return {std::move(spare), 0, true};
  }
  const MemoryOwnerScope owner("gradient tape");
  return {BufferHandle(NewHeapBuffer(bytes, kHeapAlignment)), 0, is_of_process};
}

TapeRecords::Chunk& TapeRecords::ChunkFor(size_t bytes) {
  const auto has_room = [bytes](const Chunk& chunk) {
    return chunk.buffer->bytes - chunk.used >= bytes;
  };
  if (in_use_ > 0 && has_room(chunks_[in_use_ - 1])) return chunks_[in_use_ - 1];
  auto next =
      std::find_if(chunks_.begin() + static_cast<std::ptrdiff_t>(in_use_), chunks_.end(), has_room);
  if (next == chunks_.end()) {
    const size_t grown =
        chunks_.empty() ? kFirstChunk : std::min(kLargestChunk, 2 * chunks_.back().buffer->bytes);
    chunks_.reserve(chunks_.size() + 1);
    chunks_.push_back(NewChunk(std::max(grown, bytes)));
    next = chunks_.end() - 1;
  }
  std::swap(chunks_[in_use_], *next);
  return chunks_[in_use_++];
}

TapeRecord* TapeRecords::New(int inputs, int outputs, const void* attributes,
                             size_t attribute_bytes, int kept) {
  ForgetPending();
  const size_t views = static_cast<size_t>(inputs + outputs + kept);
  const size_t head = RoundUp(sizeof(TapeRecord)), middle = RoundUp(views * sizeof(TapedView));
  const size_t bytes = head + middle + RoundUp(attribute_bytes);
  Chunk& chunk = ChunkFor(bytes);
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
    Chunk& chunk = chunks_[in_use_ - 1];
    chunk.used = static_cast<size_t>(reinterpret_cast<std::byte*>(record) - chunk.buffer->data);
  }
}

void TapeRecords::Drop() {
  ForgetPending();
  TapeRecord* const record = last_;
  last_ = record->previous;
  --count_;
  auto* const at = reinterpret_cast<std::byte*>(record);
  Destroy(record);
  // Records of segments that run again take its place.
  while (in_use_ > 0) {
    Chunk& chunk = chunks_[in_use_ - 1];
    std::byte* const begin = chunk.buffer->data;
    if (at >= begin && at < begin + chunk.buffer->bytes) {
      chunk.used = static_cast<size_t>(at - begin);
      break;
    }
    chunk.used = 0;  // it is empty: what it held came later
    --in_use_;
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
  part_ = 0;
  for (; in_use_ > 0; --in_use_) chunks_[in_use_ - 1].used = 0;
}

}  // namespace tidepool
