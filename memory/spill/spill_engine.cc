#include "tidepool/memory/spill/spill_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/host_provider.h"

namespace tidepool::internal {
namespace {

constexpr size_t kPage = SpillFile::kPageBytes;
// So often a block may come back without a page of it having moved.
constexpr int kMostTries = 16;
constexpr int kReadsInTurn = 3;  // while a write waits

std::chrono::nanoseconds LimitOf(absl::Duration limit) {
  return limit == absl::InfiniteDuration() ? std::chrono::nanoseconds(0)
                                           : absl::ToChronoNanoseconds(limit);
}

// Of what a function of it throws, which may be that there is no memory for the words.
template <typename Throws>
std::exception_ptr Caught(const Throws& throws) noexcept {
  try {
    throws();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

SpillEngine::SpillEngine(const SpillFileOptions& options, std::shared_ptr<SpillSpace> space)
    : space_(std::move(space)),
      block_bytes_(options.block_bytes),
      limit_(LimitOf(options.time_limit)),
      owner_(options.owner != nullptr ? *options.owner : MemoryOwner::Process()),
      memory_({.prefault = true, .owner = &owner_}, HostProvider()),
      packer_(options.compression) {
  const auto depth = static_cast<size_t>(options.in_flight);
  memory_.Resize(depth * block_bytes_);
  slots_.resize(depth);
  for (size_t i = 0; i < depth; ++i) slots_[i].data = memory_.base() + i * block_bytes_;
  if (space_->is_direct()) {
    // Some file systems take the flag and refuse the transfers.
    std::memset(memory_.base(), 0, kPage);
    if (pwrite(space_->descriptor(), memory_.base(), kPage, 0) < 0 && errno == EINVAL)
      space_->EndDirect();
  }
  queue_ = options.queue ? options.queue(space_->descriptor(), options.in_flight)
                         : NewFileQueue(space_->descriptor(), options.in_flight);
  stats_.queue = queue_->name();
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    ThrowResourceExhausted(
        absl::StrCat(space_->name(), ": its thread was refused: ", error.what()));
  }
  memory_bytes_ = static_cast<int64_t>(memory_.committed_bytes());
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, memory_bytes_, &owner_);
}

SpillEngine::~SpillEngine() {
  if (!space_->IsHere()) {
    // The thread and what the device has to do are the parent's.
    new (&thread_) std::thread;
    static_cast<void>(queue_.release());
    MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, -memory_bytes_, &owner_);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  queue_->Wake();
  thread_.join();
  queue_.reset();
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, -memory_bytes_, &owner_);
}

// ---- for callers --------------------------------------------------------------------------------

void SpillEngine::Begin(const std::shared_ptr<SpillRequest>& request) {
  space_->CheckHere();
  {
    std::lock_guard lock(mutex_);
    if (broken_ != nullptr) std::rethrow_exception(broken_);
    ++stats_.unfinished;
    if (request->blocks.empty()) {
      EndRequest(*request);
      return;
    }
    request->begun = Clock::now();
    try {
      waiting_[request->writes].push_back(request);
    } catch (...) {
      --stats_.unfinished;
      throw;
    }
  }
  queue_->Wake();
}

bool SpillEngine::IsDone(const SpillRequest& request) const {
  if (!space_->IsHere()) return true;  // Await() says why not
  std::lock_guard lock(mutex_);
  return request.done;
}

void SpillEngine::Await(const std::shared_ptr<SpillRequest>& request) {
  space_->CheckHere();
  std::unique_lock lock(mutex_);
  request->is_asked_for = true;
  if (!request->done) {
    const Clock::time_point begin = Clock::now();
    Count(*request, {.stalls = 1});
    const absl::Cleanup count = [&] {  // with the lock
      Count(*request,
            {.stall_nanoseconds = std::chrono::nanoseconds(Clock::now() - begin).count()});
    };
    WaitUntilDone(lock, request);
  }
  if (request->error != nullptr) std::rethrow_exception(request->error);
}

void SpillEngine::WaitUntilDone(std::unique_lock<std::mutex>& lock,
                                const std::shared_ptr<SpillRequest>& request) {
  while (!request->done) {
    if (limit_.count() == 0) {
      request->changed.wait(lock);
      continue;
    }
    // That of the block that was handed in first; of one that waits for others, since any was done.
    const Slot* oldest = nullptr;
    for (const Slot& slot : slots_) {
      if (slot.request != request) continue;
      if (oldest == nullptr || slot.since < oldest->since) oldest = &slot;
    }
    const Clock::time_point since =
        oldest != nullptr ? oldest->since : std::max(last_done_, request->begun);
    if (Clock::now() - since >= limit_) {
      const size_t block = oldest != nullptr ? oldest->block : request->handed_in;
      request->abandoned = true;
      request->changed.wait(lock, [&] { return !request->copying; });
      CountFailure();
      throw Error(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(Where(*request, block), " has had no answer for ",
                               absl::FormatDuration(absl::FromChrono(limit_)), " (time_limit)"));
    }
    request->changed.wait_until(lock, since + limit_);
  }
}

void SpillEngine::Count(const SpillRequest& request, const SpillWayCounters& change) noexcept {
  SpillWayCounters& way = request.writes ? stats_.written : stats_.read;
  way.transfers += change.transfers;
  way.bytes += change.bytes;
  way.stored_bytes += change.stored_bytes;
  way.stalls += change.stalls;
  way.stall_nanoseconds += change.stall_nanoseconds;
  way.dropped += change.dropped;
  way.dropped_bytes += change.dropped_bytes;
  CountSpilled(request.writes, change);
}

void SpillEngine::CountFailure() noexcept {
  ++stats_.failures;
  CountSpillFailure();
}

void SpillEngine::Abandon(SpillRequest& request) noexcept {
  if (!space_->IsHere()) return;
  std::unique_lock lock(mutex_);
  const bool in_vain = !request.is_asked_for && request.error == nullptr && !request.blocks.empty();
  if (in_vain) Count(request, {.dropped = 1, .dropped_bytes = request.bytes()});
  request.abandoned = true;
  request.changed.wait(lock, [&] { return !request.copying; });
}

void SpillEngine::AddTo(SpillFileStats& stats) const {
  if (!space_->IsHere()) return;
  std::lock_guard lock(mutex_);
  stats.written = stats_.written;
  stats.read = stats_.read;
  stats.failures = stats_.failures;
  stats.unfinished = stats_.unfinished;
  stats.busy_seconds = stats_.busy_seconds;
  if (under_way_ > 0) {
    stats.busy_seconds += std::chrono::duration<double>(Clock::now() - busy_since_).count();
  }
  stats.queue = stats_.queue;
}

// ---- the thread ---------------------------------------------------------------------------------

void SpillEngine::Run() noexcept {
  const std::exception_ptr broken = Caught([this] { RunUntilTheEnd(); });
  if (broken == nullptr) return;
  std::lock_guard lock(mutex_);
  broken_ = broken;
  for (Slot& slot : slots_) {
    if (slot.request != nullptr) EndBlock(slot, broken_);
  }
  for (auto& requests : waiting_) {
    for (const auto& request : requests) {
      if (request->error == nullptr) request->error = broken_;
      EndRequest(*request);
    }
    requests.clear();
  }
}

void SpillEngine::RunUntilTheEnd() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (HandInOne(lock)) {
    }
    if (ends_ && under_way_ == 0 && waiting_[0].empty() && waiting_[1].empty()) return;
    const bool is_under_way = under_way_ > 0;
    lock.unlock();
    const std::optional<FileQueue::Done> done = WaitForDevice(is_under_way);
    lock.lock();
    if (done.has_value()) Finish(lock, *done);
  }
}

std::optional<FileQueue::Done> SpillEngine::WaitForDevice(bool is_under_way) {
  if (!packs() || !is_under_way) return queue_->Wait();
  const Clock::time_point begin = Clock::now();
  std::optional<FileQueue::Done> done = queue_->Wait();
  packer_.pace().Waited(std::chrono::duration<double>(Clock::now() - begin).count());
  return done;
}

// Whose block is next; those that are abandoned or have failed are dropped.
std::shared_ptr<SpillRequest> SpillEngine::Next() {
  for (auto& requests : waiting_) {
    while (!requests.empty() &&
           (requests.front()->abandoned || requests.front()->error != nullptr)) {
      SpillRequest& request = *requests.front();
      if (request.under_way == 0) EndRequest(request);
      requests.pop_front();
    }
  }
  auto& [reads, writes] = waiting_;
  if (reads.empty() && writes.empty()) return nullptr;
  const bool reading = !reads.empty() && (writes.empty() || reads_in_turn_ < kReadsInTurn);
  reads_in_turn_ = reading ? reads_in_turn_ + 1 : 0;
  return reading ? reads.front() : writes.front();
}

// False: there is nothing to hand in, or no memory for it.
bool SpillEngine::HandInOne(std::unique_lock<std::mutex>& lock) {
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return slot.request == nullptr; });
  if (free == slots_.end()) return false;
  const std::shared_ptr<SpillRequest> request = Next();
  if (request == nullptr) return false;
  const auto number = static_cast<size_t>(free - slots_.begin());
  Slot& slot = *free;
  slot.request = request;
  slot.block = request->handed_in++;
  slot.moved = 0;
  slot.tries = 0;
  slot.since = Clock::now();
  slot.bytes = WholePages(request->blocks[slot.block].stored);
  ++request->under_way;
  if (under_way_++ == 0) busy_since_ = slot.since;
  if (request->handed_in == request->blocks.size()) waiting_[request->writes].pop_front();
  if (request->writes) {
    SpilledBlock block = request->blocks[slot.block];
    request->copying = true;
    lock.unlock();
    std::exception_ptr error = Caught([&] { Fill(slot, &block); });
    lock.lock();
    request->copying = false;
    request->blocks[slot.block] = block;
    request->kept.blocks_[slot.block] = block;
    if (request->abandoned || error != nullptr) {
      request->changed.notify_all();
      EndBlock(slot, request->abandoned ? nullptr : std::move(error));
      return true;
    }
    slot.bytes = WholePages(block.stored);
  }
  lock.unlock();
  Submit(number);
  lock.lock();
  return true;
}

void SpillEngine::Submit(size_t number) {
  const Slot& slot = slots_[number];
  queue_->Submit(
      {.tag = number,
       .writes = slot.request->writes,
       .data = slot.data + slot.moved,
       .bytes = slot.bytes - slot.moved,
       .offset = slot.request->blocks[slot.block].offset + static_cast<int64_t>(slot.moved)});
}

void SpillEngine::Finish(std::unique_lock<std::mutex>& lock, const FileQueue::Done& done) {
  Slot& slot = slots_[done.tag];
  last_done_ = Clock::now();
  const bool again = done.result == -EINTR || done.result == -EAGAIN;
  if (done.result <= 0 && !again)
    return EndBlock(slot, Caught([&] { ThrowErrorOf(slot, done.result); }));
  // Whole pages, as the next part begins at one.
  const size_t moved = again ? 0 : static_cast<size_t>(done.result) / kPage * kPage;
  if (moved == 0 && ++slot.tries == kMostTries)
    return EndBlock(slot, Caught([&] { ThrowErrorOf(slot, done.result); }));
  slot.moved += std::min(moved, slot.bytes - slot.moved);
  if (slot.moved < slot.bytes) {
    lock.unlock();
    Submit(done.tag);
    lock.lock();
    return;
  }
  if (packs()) packer_.pace().Moved(slot.bytes);
  if (!slot.request->writes) return Receive(lock, slot);
  EndBlock(slot, nullptr);
}

// What was read: checked, and then the caller's.
void SpillEngine::Receive(std::unique_lock<std::mutex>& lock, Slot& slot) {
  SpillRequest& request = *slot.request;
  if (request.abandoned || request.error != nullptr) return EndBlock(slot, nullptr);
  request.copying = true;
  lock.unlock();
  std::exception_ptr error = Caught([&] { Empty(slot); });
  lock.lock();
  request.copying = false;
  EndBlock(slot, std::move(error));
}

void SpillEngine::EndBlock(Slot& slot, std::exception_ptr error) noexcept {
  const std::shared_ptr<SpillRequest> request = std::move(slot.request);
  slot.request = nullptr;
  if (--under_way_ == 0) {
    stats_.busy_seconds += std::chrono::duration<double>(Clock::now() - busy_since_).count();
  }
  if (error != nullptr && request->error == nullptr) request->error = std::move(error);
  const bool no_more = request->handed_in == request->blocks.size() || request->error != nullptr ||
                       request->abandoned;
  if (--request->under_way == 0 && no_more) return EndRequest(*request);
  request->changed.notify_all();
}

void SpillEngine::EndRequest(SpillRequest& request) noexcept {
  if (!request.done && !request.abandoned) {
    if (request.error != nullptr) {
      CountFailure();
    } else {
      Count(request,
            {.transfers = 1, .bytes = request.bytes(), .stored_bytes = request.stored_bytes()});
    }
  }
  if (!request.done) --stats_.unfinished;
  request.done = true;
  request.changed.notify_all();
}

}  // namespace tidepool::internal
