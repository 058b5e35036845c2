// A device of several queues as a model, for tests that explore the threads that queue work in them.
//
// The model knows of each piece of work what it comes behind, whatever the threads do: a queue has the set of
// all work that what is queued there next comes behind, and a point is such a set. Two pieces of work that use
// the same bytes, one of them to write, of which neither comes behind the other, fail the execution.
#ifndef TIDEPOOL_MEMORY_SYNC_EXPLORED_DEVICE_H_
#define TIDEPOOL_MEMORY_SYNC_EXPLORED_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explored {

using explorer::Check;
using explorer::Sync;
inline constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

// What a thread leaves out; set before an exploration.
enum class Mistake {
  kNone,
  kNoTurn,                // takes no turn at all
  kTurnEndsBeforeWork,    // is queued
  kDecidesBeforeTurn,     // keeps what it found in a turn with others when it is alone
  kLateWorkNotWaitedFor,  // that began before there was a second queue
  kLooksAtFlagAgain,      // in a turn that began before
  kNoCare,                // does not note kOnQueues
  kWriterNotNoted,
  kReaderNotNoted,
  kFirstReaderNotNoted,
  kSetIsLeft,        // to the next item of the record
  kOwnerNotTold,     // UsedInQueue
  kNoWaitForOthers,  // OrderQueueAfter
  kNoWaitAtRelease,
  kEndIsForgotten,    // of a queue that ends
  kNumberBeginsAnew,  // not behind the end of the queue that had it before
  // Of copies between devices.
  kCopyNotBehindSource,
  kCopyNotBehindTarget,
  kTargetNotNoted,
  kTargetQueueGoesOn,  // before the copy
  kSourceNotNoted,
  kSourceQueueGoesOn,
};
inline constexpr Mistake kLastMistake = Mistake::kNumberBeginsAnew;  // of one device
inline constexpr Mistake kLastMistakeOfTwo = Mistake::kSourceQueueGoesOn;
inline const char* MistakeName(Mistake which) {
  constexpr const char* kNames[] = {
      "kNone",
      "kNoTurn",
      "kTurnEndsBeforeWork",
      "kDecidesBeforeTurn",
      "kLateWorkNotWaitedFor",
      "kLooksAtFlagAgain",
      "kNoCare",
      "kWriterNotNoted",
      "kReaderNotNoted",
      "kFirstReaderNotNoted",
      "kSetIsLeft",
      "kOwnerNotTold",
      "kNoWaitForOthers",
      "kNoWaitAtRelease",
      "kEndIsForgotten",
      "kNumberBeginsAnew",
      "kCopyNotBehindSource",
      "kCopyNotBehindTarget",
      "kTargetNotNoted",
      "kTargetQueueGoesOn",
      "kSourceNotNoted",
      "kSourceQueueGoesOn",
  };
  return kNames[static_cast<int>(which)];
}
inline Mistake mistake = Mistake::kNone;
inline bool Makes(Mistake which) { return mistake == which; }

inline constexpr int kQueues = 4;  // of the model
using Works = uint64_t;            // a bit each
enum Part : uint32_t { kLeft = 1, kRight = 2, kMiddle = 4, kWhole = 7 };

// What has been queued, on one device or on those that copy to each other. No thread sees it.
class WorkLog {
 public:
  struct Access {
    int memory;
    uint32_t part;
    bool writes;
  };

  Works Add(Works behind, const std::vector<Access>& accesses, bool whole_items) {
    behind |= done_;
    for (const Access& access : accesses) {
      for (const Work& earlier : works_) {
        const bool meet = earlier.access.memory == access.memory &&
                          (whole_items || (earlier.access.part & access.part) != 0);
        if (!meet || !(earlier.access.writes || access.writes)) continue;
        Check((behind & earlier.bit) != 0,
              "work that uses the same bytes is done one after the other");
      }
    }
    const Works bit = next_;
    next_ <<= 1;
    for (const Access& access : accesses) works_.push_back({access, bit});
    return behind | bit;
  }
  void Finish(Works point) { done_ |= point; }

 private:
  struct Work {
    Access access;
    Works bit;
  };
  std::vector<Work> works_;
  Works next_ = 1;
  Works done_ = 0;
};

// Every call is one step, in one order for all threads, as a driver's lock makes it.
class Device {
 public:
  using Access = WorkLog::Access;

  // Two halves are ordered like one whole.
  bool whole_items = true;

  void OpenQueue(int queue, int) {
    ends_[queue] = 0;
    open_ |= 1u << queue;
  }
  void CloseQueue(int queue) noexcept { open_ &= ~(1u << queue); }
  Works ComputePoint(int queue) {
    Step();
    return ends_[queue];
  }
  void ComputeAfter(int queue, Works point) {
    Step();
    if (opening_ && Makes(Mistake::kNumberBeginsAnew)) return;
    ends_[queue] |= point;
  }
  // What either does to the same bytes from here on comes behind it.
  void WaitFor(Works point) {
    Step();
    if (peer_ != nullptr) peer_->Step();
    log_->Finish(point);
  }
  // A kernel.
  void Run(int queue, const std::vector<Access>& accesses) {
    Step();
    Check((open_ >> queue & 1) != 0, "nothing is queued in a queue that has ended");
    ends_[queue] |= log_->Add(ends_[queue], accesses, whole_items);
  }
  // A copy, beside the queues.
  Works Copy(Works after, const Access& access) {
    Step();
    return log_->Add(after, {access}, whole_items);
  }
  // One to the other device, in whose queue what comes later is behind it.
  Works CopyToPeer(Works after, const Access& from, int to_queue, const Access& to) {
    Step();
    peer_->Step();
    const Works copied = log_->Add(after, {from, to}, whole_items);
    if (!Makes(Mistake::kTargetQueueGoesOn)) peer_->ends_[to_queue] |= copied;
    return copied;
  }
  void MakePeers(Device& other) {
    peer_ = &other;
    other.peer_ = this;
    other.log_ = log_;
  }
  // Of the next ComputeAfter.
  void set_opening(bool opening) { opening_ = opening; }

 private:
  void Step() { step_.fetch_add(1, std::memory_order_acq_rel); }

  Sync::Atomic<int> step_{0};
  WorkLog own_log_;
  WorkLog* log_ = &own_log_;
  Device* peer_ = nullptr;
  Works ends_[kQueues] = {};
  uint32_t open_ = 1;
  bool opening_ = false;
};

}  // namespace tidepool::explored

#endif  // TIDEPOOL_MEMORY_SYNC_EXPLORED_DEVICE_H_
