#include "tidepool/memory/spill/host_blocks.h"

#include <algorithm>
#include <utility>

#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/spill/host_block.h"

namespace tidepool {

HostBlocks::~HostBlocks() {
  for (Block& block : kept_) Release(block);
}

HostBlocks::Block HostBlocks::Take(Device device, size_t bytes) {
  kept_.reserve(in_use_ + kept_.size() + 1);  // GiveBack() cannot fail
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Block& block) {
    return block.device == device && block.memory->bytes == bytes;
  });
  Block block;
  if (found != kept_.end()) {
    block = std::move(*found);
    kept_.erase(found);
  } else {
    block.memory = BufferHandle(NewHostBlockFor(device, bytes));
    block.device = device;
    bytes_ += bytes;
  }
  ++in_use_;
  block.taken = true;
  return block;
}

void HostBlocks::GiveBack(Block block) noexcept {
  --in_use_;
  kept_.push_back(std::move(block));
}

void HostBlocks::Release(Block& block) noexcept {
  try {
    GetDeviceProvider(block.device, "host block").WaitFor(block.used);
  } catch (...) {
    // That copy failed; it uses the memory no more.
  }
  bytes_ -= block.memory->bytes;
  block.memory.Reset();
}

void HostBlocks::EndRound() noexcept {
  std::erase_if(kept_, [this](Block& block) {
    if (std::exchange(block.taken, false)) return false;
    Release(block);
    return true;
  });
}

HostWait::HostWait(Buffer& from, HostBlocks& blocks)
    : provider_(GetDeviceProvider(from.device, "host block")),
      blocks_(blocks),
      block_(blocks.Take(from.device, from.bytes)),
      bytes_(from.bytes) {
  try {
    const QueueTurn turn(from.device, /*alone=*/true);
    queue_ = QueueHere(from.device);
    OrderUsesAlone(turn, from.device, queue_, {&from, false});
    ComputeAfterOrWait(provider_, queue_, block_.used);
    queued_ = provider_.QueueCopyToHost(block_.memory->data, from.data, bytes_,
                                        provider_.ComputePoint(queue_));
  } catch (...) {
    blocks_.GiveBack(std::move(block_));
    RethrowAsError("host block", from.device);
  }
  block_.used = queued_;
  const auto bytes_here = static_cast<int64_t>(bytes_);
  waiting_ = internal::WaitingInTier(Host(), bytes_here);
  internal::CountSpillTier(Host(), {.came = 1, .came_bytes = bytes_here});
}

HostWait::HostWait(HostWait&& other) noexcept
    : provider_(other.provider_),
      blocks_(other.blocks_),
      block_(std::move(other.block_)),
      bytes_(other.bytes_),
      waiting_(std::move(other.waiting_)),
      queued_(other.queued_),
      queue_(other.queue_),
      ordered_(other.ordered_) {}

HostWait::~HostWait() {
  if (!block_.memory) return;
  try {
    LetGo();
  } catch (...) {
    try {
      provider_.WaitFor(queued_);
    } catch (...) {
      // It failed, and uses nothing any more.
    }
  }
  blocks_.GiveBack(std::move(block_));
}

void HostWait::LetGo() {
  if (ordered_) return;
  const QueueTurn turn(block_.device, /*alone=*/true);
  ComputeAfterOrWait(provider_, queue_, queued_);
  ordered_ = true;
}

void HostWait::BeginBack(Buffer& to) {
  LetGo();
  const QueueTurn turn(to.device, /*alone=*/true);
  const int queue = QueueHere(to.device);
  ComputeAfterOrWait(provider_, queue, queued_);  // it may be another one
  // What it still does for those who had the memory before.
  if (IsUnused(to)) ComputeAfterOrWait(provider_, queue, provider_.EarlierUses(to.data, to.bytes));
  OrderUsesAlone(turn, to.device, queue, {&to, true});
  queued_ = AskProvider("host block", to.device, [&] {
    return provider_.QueueCopyFromHost(to.data, block_.memory->data, bytes_,
                                       provider_.ComputePoint(queue));
  });
  block_.used = queued_;
  queue_ = queue;
  ordered_ = false;
  internal::CountSpillTier(Host(), {.returned = 1, .returned_bytes = static_cast<int64_t>(bytes_)});
}

void HostWait::Arrive() { LetGo(); }

}  // namespace tidepool
