// Single blocks of a simulated device, kept ones too.
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {

void SimulatedDevice::set_keeps_blocks(size_t most_bytes) {
  reclaimer_ = Reclaimer::Registration();
  kept_ = std::make_unique<KeptBlocks>(*this, *this, kAlignment, most_bytes);
  reclaimer_ = Reclaimer::Global().Register(
      "kept blocks of " + name(), [this](ReclaimDepth depth) -> int64_t {
        return depth == ReclaimDepth::kSpare ? 0 : static_cast<int64_t>(kept_->TrimUnused());
      });
}

std::byte* SimulatedDevice::NewBlock(size_t bytes, size_t alignment) noexcept {
  if (faults_.Next() || !Works() || bytes > SIZE_MAX / 8) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (alignment < alignment_ || alignment > kMaxAlignment) Die("alignment", nullptr, alignment);
  ++counters_.blocks;
  const size_t whole =
      (bytes + kReadableTailBytes + kGranularity - 1) / kGranularity * kGranularity;
  if (whole > capacity_ - std::min(capacity_, used_)) return nullptr;
  std::byte* const base = NewRange(whole);
  if (base == nullptr) return nullptr;
  Range& range = ranges_[base];
  if (!HostProvider().Commit(range.hidden, whole, false)) {
    EndRange(base);
    return nullptr;
  }
  range.committed.assign(range.committed.size(), true);
  range.block_bytes = bytes;
  used_ += whole;
  return base;
}

void SimulatedDevice::EndBlock(std::byte* data, size_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(data);
  if (it == ranges_.end() || it->second.block_bytes != bytes) Die("release", data, bytes);
  ++counters_.releases;
  EndRange(data);
}

std::byte* SimulatedDevice::Allocate(size_t bytes, size_t alignment) noexcept {
  return kept_ != nullptr ? kept_->Allocate(bytes, alignment) : NewBlock(bytes, alignment);
}

void SimulatedDevice::Release(std::byte* data, size_t bytes) noexcept {
  const Block block{data, bytes};
  ReleaseMany(&block, 1);
}

void SimulatedDevice::ReleaseMany(const Block* blocks, int count) noexcept {
  if (kept_ != nullptr) return kept_->ReleaseMany(blocks, count);
  for (int i = 0; i < count; ++i) {
    queues_.WaitForUsersOf({blocks[i].data, blocks[i].data + blocks[i].bytes});
    EndBlock(blocks[i].data, blocks[i].bytes);
  }
}

bool SimulatedDevice::NoteUsers(const std::byte* data, uint32_t queues) noexcept {
  if (kept_ == nullptr) return false;
  kept_->NoteUsers(data, queues);
  return true;
}

QueuePoint SimulatedDevice::EarlierUses(const std::byte* data, size_t) {
  return kept_ != nullptr ? kept_->EarlierUses(data) : QueuePoint{};
}

std::byte* SimulatedDevice::TakeBlock(size_t bytes, QueuePoint*) noexcept {
  return NewBlock(bytes, kAlignment);
}

void SimulatedDevice::GiveBlock(std::byte* data, size_t bytes) noexcept {
  if (!queues_.Release({data, data + bytes})) Die("end of a block that work uses", data, bytes);
  EndBlock(data, bytes);
}

void SimulatedDevice::FinishAll() noexcept {
  try {
    queues_.WaitForAll(device_.index);
  } catch (const Error&) {
    // What has failed is done.
  }
}

}  // namespace tidepool
