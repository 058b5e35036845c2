#include "tidepool/ndarray/spill/spilled_tape.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool {

SpilledTape::SpilledTape(GradientTape& tape, SpillFile* file, SpilledTapeOptions options,
                         HostBlocks* blocks)
    : tape_(tape),
      file_(file),
      blocks_(blocks),
      moves_(!internal::KernelsAreOff()),
      options_(options) {
  if (options_.behind >= 1 && options_.ahead >= 0) return;
  ThrowInvalidArgument(absl::StrCat("spilled tape: writes end ", options_.behind,
                                    " parts behind and reads begin ", options_.ahead,
                                    " ahead, expected at least 1 and 0"));
}

template <typename Call>
auto SpilledTape::Stalled(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::Cleanup end = [&] {
    stats_.stall_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  return call();
}

void SpilledTape::Stays(const NDArray& array) {
  if (array.is_defined() && array.buffer()) numbers_.emplace(array.buffer()->id, kStaysAlways);
}

bool SpilledTape::Spills(const Buffer& buffer) const {
  if (buffer.bytes == 0 || buffer.MayBeWrittenOutside()) return false;
  // The device may not have the bytes of one that has a copy on the host.
  return buffer.device == Host() ? file_ != nullptr
                                 : blocks_ != nullptr && BufferMirror::Find(buffer) == nullptr;
}

void SpilledTape::EndPart(int part, bool spills) {
  tape_.VisitKept([&](const BufferHandle& buffer) {
    const auto found = numbers_.find(buffer->id);
    if (found != numbers_.end()) {
      if (found->second != kStaysAlways) items_[found->second].last_part = part;
      return;
    }
    if (!spills || !Spills(*buffer.get())) {
      numbers_.emplace(buffer->id, kStaysAlways);
      return;
    }
    numbers_.emplace(buffer->id, items_.size());
    writing_.push_back(items_.size());
    Item& item = items_.emplace_back();
    item.buffer = buffer;
    item.device = buffer->device;
    item.buffer_id = buffer->id;
    item.bytes = buffer->bytes;
    item.version = buffer->version.load(std::memory_order_relaxed);
    item.first_part = item.last_part = part;
    if (!moves_) return;
    if (item.device == Host()) {
      item.transfer = file_->BeginWrite(buffer->data, buffer->bytes);
    } else {
      RefuseWhileCapturing("spill", "replays would not wait for what a plan has on the host");
      item.wait.emplace(*item.buffer.get(), *blocks_);
    }
  });
  for (const size_t i : writing_) {
    if (items_[i].first_part <= part - options_.behind) LetGo(items_[i]);
  }
  std::erase_if(writing_, [&](size_t i) { return items_[i].state != State::kWriting; });
}

void SpilledTape::LetGo(Item& item) {
  const auto handles = tape_.KeptHandles(item.buffer_id) + 1;
  if (item.buffer->references.load(std::memory_order_acquire) != handles) return;  // later
  const bool unchanged = item.version == item.buffer->version.load(std::memory_order_relaxed);
  if (item.wait.has_value()) {
    item.wait->LetGo();
  } else if (moves_) {
    item.kept = Stalled([&] { return item.transfer.Wait(); });
  }
  item.transfer = SpillTransfer();
  if (unchanged && tape_.ReleaseKept(item.buffer_id, 1, this)) {
    item.state = State::kAway;
    ++stats_.arrays;
    stats_.bytes += static_cast<int64_t>(item.bytes);
  } else {
    item.state = State::kStays;
    item.kept.Reset();
    item.wait.reset();
  }
  item.buffer.Reset();
}

void SpilledTape::EndForward() {
  for (const size_t i : writing_) {
    Item& item = items_[i];
    LetGo(item);
    if (item.state != State::kWriting) continue;
    item.transfer = SpillTransfer();  // somebody has it for longer
    item.wait.reset();
    item.state = State::kStays;
    item.buffer.Reset();
  }
  writing_.clear();
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].state == State::kAway) away_.push_back(i);
  }
  std::stable_sort(away_.begin(), away_.end(),
                   [&](size_t a, size_t b) { return items_[a].last_part < items_[b].last_part; });
}

void SpilledTape::PartIsNext(int part) {
  while (!away_.empty() && items_[away_.back()].last_part >= part - options_.ahead) {
    Item& item = items_[away_.back()];
    away_.pop_back();
    if (item.state == State::kAway) BeginRead(item);
  }
}

void SpilledTape::BeginRead(Item& item) {
  const NDArray array({static_cast<int64_t>(item.bytes)}, DType::kUInt8,
                      Place::CurrentOn(item.device));
  item.buffer = array.buffer();
  // It is the array that the tape knows.
  item.buffer->id = item.buffer_id;
  item.buffer->version.store(item.version, std::memory_order_relaxed);
  item.state = State::kReading;
  if (item.wait.has_value()) {
    item.wait->BeginBack(*item.buffer.get());
  } else if (moves_) {
    item.transfer = file_->BeginRead(item.kept, item.buffer->data);
  }
}

BufferHandle SpilledTape::Bring(uint64_t buffer_id) {
  Item& item = items_[numbers_.at(buffer_id)];
  if (item.state == State::kAway) BeginRead(item);
  if (item.wait.has_value()) {
    item.wait->Arrive();
  } else if (moves_) {
    Stalled([&] {
      item.transfer.Wait();
      return 0;
    });
  }
  item.state = State::kStays;
  item.kept.Reset();
  item.wait.reset();
  return std::exchange(item.buffer, BufferHandle());
}

void SpilledTape::Drop(uint64_t buffer_id) {
  Item& item = items_[numbers_.at(buffer_id)];
  item.transfer = SpillTransfer();
  item.wait.reset();
  item.buffer.Reset();
  item.kept.Reset();
  item.state = State::kStays;
}

void SpilledTape::Clear() {
  items_.clear();
  numbers_.clear();
  writing_.clear();
  away_.clear();
}

}  // namespace tidepool
