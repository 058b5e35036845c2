// RingChannel<T>: hands committed batches from producers to readers, first in, first out.
//
//   RingChannel<Batch> channel(ring);
//   // producer
//   try {
//     while (std::optional<RingSlotScope> slot = RingSlotScope::Open(ring, stop)) {
//       Batch batch = Decode(...);
//       if (!channel.Push(slot->Commit(), std::move(batch))) break;   // readers are gone
//     }
//     channel.Close();
//   } catch (...) {
//     channel.Fail(std::current_exception());     // readers get it, of its own type
//   }
//   // reader
//   while (std::optional<RingChannel<Batch>::Item> item = channel.Pop()) Use(item->value);
//
// It needs no capacity of its own: the ring bounds how many batches exist. A reader that comes back
// for more while it still holds earlier batches keeps them (ring.h): such slots count against
// ring_max_kept, and Pop() throws kResourceExhausted where there are too many; also when it waits
// while every slot is kept and none is released for ring_stall_limit_ms, at which intervals it
// looks. The reader may release some and pop on; nothing is lost.
//
// Ownership: the channel owns what was pushed and not popped; destroying it releases that. It must
// not outlive the ring, and producers and readers must have left it.
// Threads: any number of producers and readers, which may be as short-lived as they like; size()
// from any thread, a monitor's too. Cost: an uncontended lock per Push, that and two of the ring's
// per Pop; a thread is woken only if one waits.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_CHANNEL_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_CHANNEL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidepool/memory/workspace/ring.h"

namespace tidepool {

namespace internal {

[[noreturn]] void ThrowEmptyLease();

// Tells the ring which thread took which batch out of one channel.
class RingReaders {
 public:
  explicit RingReaders(RingWorkspace& ring) : core_(ring.core()) {}
  // This thread comes for the next batch: what it took before and is still leased, it keeps. Throws
  // kResourceExhausted where that is too much.
  void ComesBack();
  // This thread got it.
  void Takes(const SlotLease& lease) noexcept;
  // While it waits: 0 where a batch may come without a slot being released; else what stays the same
  // until one is. After each stall_limit(), 0 being none, the wait throws kResourceExhausted when
  // that has stayed the same.
  std::chrono::milliseconds stall_limit() const;
  uint64_t Stuck() const;
  void ThrowIfStillStuck(uint64_t stuck) const;

 private:
  RingCore* core_;
};

}  // namespace internal

template <typename T>
class RingChannel {
  // A batch that came apart on its way would lose its slot, or keep it for ever.
  static_assert(std::is_nothrow_move_constructible_v<T>, "batches must move without throwing");

 public:
  using Item = Leased<T>;

  explicit RingChannel(RingWorkspace& ring) : readers_(ring), items_(ring.slots() + 1) {}
  RingChannel(const RingChannel&) = delete;
  RingChannel& operator=(const RingChannel&) = delete;

  // False when the channel was closed; the batch is dropped then. Throws kInvalidArgument for an empty
  // lease.
  bool Push(SlotLease lease, T value) {
    if (!lease) internal::ThrowEmptyLease();
    // Arguments are destroyed in whatever order; and a slot is not freed under the lock.
    Item item(std::move(lease), std::move(value));
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return false;
    if (count_ == items_.size()) Enlarge();
    items_[(first_ + count_) % items_.size()].emplace(std::move(item));
    ++count_;
    if (waiting_ > 0) changed_.notify_one();
    return true;
  }

  // Nothing comes any more; readers get what was pushed before, then nothing. Idempotent.
  void Close() { End(nullptr); }
  // As Close(), but readers get the exception after what was pushed before. The first call of Close
  // and Fail counts.
  void Fail(std::exception_ptr error) { End(std::move(error)); }

  // The oldest batch; waits for one. Empty when the channel is closed and everything was popped, or
  // when `stop` is requested. Throws what Fail() was given, to every reader.
  std::optional<Item> Pop(const std::stop_token& stop = {}) {
    readers_.ComesBack();
    std::unique_lock<std::mutex> lock(mutex_);
    if (count_ == 0 && !closed_) {
      Wait(lock, stop);
    }
    if (stop.stop_requested()) {
      if (count_ > 0 && waiting_ > 0) changed_.notify_one();  // whose wake-up this one took
      return std::nullopt;
    }
    if (count_ == 0) {
      if (error_ != nullptr) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<Item> item = std::move(items_[first_]);
    items_[first_].reset();
    first_ = (first_ + 1) % items_.size();
    --count_;
    lock.unlock();
    readers_.Takes(item->lease);
    return item;
  }

  // Batches pushed and not popped.
  size_t size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  void Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    struct Waiting {
      explicit Waiting(int& waiting) : number(waiting) { ++number; }
      ~Waiting() { --number; }
      int& number;
    } waiting(waiting_);
    const auto over = [this] { return count_ > 0 || closed_; };
    const std::chrono::milliseconds limit = readers_.stall_limit();
    if (limit.count() == 0) return (void)changed_.wait(lock, stop, over);
    for (;;) {
      const uint64_t stuck = readers_.Stuck();
      if (changed_.wait_for(lock, stop, limit, over) || stop.stop_requested()) return;
      readers_.ThrowIfStillStuck(stuck);
    }
  }
  void End(std::exception_ptr error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  // More batches than slots: temporary ones.
  void Enlarge() {
    std::vector<std::optional<Item>> larger(items_.size() * 2);
    for (size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(items_[(first_ + i) % items_.size()]);
    }
    items_ = std::move(larger);
    first_ = 0;
  }

  internal::RingReaders readers_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_:
  std::vector<std::optional<Item>> items_;  // a circle
  size_t first_ = 0;
  size_t count_ = 0;
  int waiting_ = 0;
  bool closed_ = false;
  std::exception_ptr error_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_CHANNEL_H_
