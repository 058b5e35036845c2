#include "tidepool/ndarray/gradient/tape_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/ndarray/gradient/spare_chunks.h"

namespace tidepool {

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
    if (BufferHandle spare = TakeSpareChunk(bytes)) return {std::move(spare), true};
  }
  const MemoryOwnerScope owner("gradient tape");
  return {BufferHandle(NewHeapBuffer(bytes, kHeapAlignment)), is_of_process};
}

void TapeRecords::EnterChunkFor(size_t bytes) {
  auto next = std::find_if(chunks_.begin() + static_cast<std::ptrdiff_t>(in_use_), chunks_.end(),
                           [bytes](const Chunk& chunk) { return chunk.buffer->bytes >= bytes; });
  if (next == chunks_.end()) {
    const size_t grown =
        chunks_.empty() ? kFirstChunk : std::min(kLargestChunk, 2 * chunks_.back().buffer->bytes);
    chunks_.reserve(chunks_.size() + 1);
    chunks_.push_back(NewChunk(std::max(grown, bytes)));
    next = chunks_.end() - 1;
  }
  std::swap(chunks_[in_use_++], *next);
  WriteFrom(nullptr);
}

void TapeRecords::WriteFrom(std::byte* at) {
  if (in_use_ == 0) {
    begin_ = next_ = end_ = nullptr;
    return;
  }
  const Buffer& buffer = *chunks_[in_use_ - 1].buffer.get();
  begin_ = buffer.data;
  next_ = at != nullptr ? at : begin_;
  end_ = begin_ + buffer.bytes;
}

TapeRecord* TapeRecords::New(int inputs, int outputs, int rank, const void* attributes,
                             size_t attribute_bytes, int kept) {
  const int views = inputs + outputs + kept;
  TapeRecord* const record = NewWithoutViews(views, rank, attributes, attribute_bytes);
  for (int v = 0; v < views; ++v) new (&record->view(v)) TapedView();
  record->input_count = static_cast<uint16_t>(inputs);
  record->output_count = static_cast<uint16_t>(outputs);
  record->kept_count = static_cast<uint16_t>(kept);
  return record;
}

std::unique_ptr<TapeExtra> TapeRecords::NewExtra() {
  if (spare_extra_ == nullptr) return std::make_unique<TapeExtra>();
  std::unique_ptr<TapeExtra> extra = std::move(spare_extra_);
  spare_extra_ = std::move(extra->next);
  return extra;
}

void TapeRecords::Destroy(TapeRecord* record) {
  if (record->extra != nullptr) [[unlikely]] {
    record->extra->Clear();
    record->extra->next = std::move(spare_extra_);
    spare_extra_ = std::move(record->extra);
  }
  std::byte* view = record->first_view();
  for (int left = record->view_count(); left > 0; --left, view += record->view_bytes)
    std::destroy_at(reinterpret_cast<TapedView*>(view));
  std::destroy_at(record);
}

void TapeRecords::GoBackTo(std::byte* at) {
  // What was written to chunks behind its own came later.
  while (at < begin_ || at >= end_) {
    --in_use_;
    WriteFrom(nullptr);
  }
  next_ = at;
}

void TapeRecords::ForgetPending() {
  TapeRecord* const record = std::exchange(pending_, nullptr);
  if (record == nullptr) return;
  Destroy(record);
  next_ = reinterpret_cast<std::byte*>(record);
}

void TapeRecords::Drop() {
  ForgetPending();
  TapeRecord* const record = last_;
  last_ = record->previous;
  --count_;
  auto* const at = reinterpret_cast<std::byte*>(record);
  Destroy(record);
  GoBackTo(at);  // records of segments that run again take its place
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
  in_use_ = 0;
  WriteFrom(nullptr);
}

}  // namespace tidepool
