// OwnerWord: whose a buffer is, in one word, and so who closes it: whoever moves the word to
// kClosed gives the bytes back, nobody else does.
//
//   kHandles      Its handles'. Anybody who has one, or a loan of it, may move it, by
//                 compare-exchange.
//   a reference   A node's (owner_list.h). Moved under that node's lock only, while the reference
//                 is the node's current one. An outdated one, of a node that dropped what it had,
//                 is as kHandles once DropOutdated has said so.
//   kClosed       For ever, until the record serves another buffer.
//
// So two threads that close, or one that closes and one that attaches, are decided by one exchange
// or by one lock, and no closed buffer is in a node's list.
//
// The last handle: it is nobody's but the node's then, which may be closing it. It waits for the
// node's lock while the word is a reference; a node that closes it sets kClosed last, so that the
// record does not go before.
//
// Orders: Set releases; looks and exchanges acquire: whoever takes it from its handles, or finds it
// closed, comes after the node that gave it up. An exchange needs no release: what it leads to is
// under a node's lock. Where lending meets closing, who closes moves the word and then notes in the
// buffer's `care` (release), who lends notes in `care` (acquire) and then looks at the word.
#ifndef TIDEPOOL_MEMORY_SYNC_OWNER_WORD_H_
#define TIDEPOOL_MEMORY_SYNC_OWNER_WORD_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

// A node's reference is kOwnerIndexBits of index, which is not 0, and above them a generation.
inline constexpr int kOwnerIndexBits = 24;
inline constexpr uint64_t kOwnerIndexMask = (uint64_t{1} << kOwnerIndexBits) - 1;
inline constexpr uint64_t kOwnerGeneration = uint64_t{1} << kOwnerIndexBits;

template <typename Sync>
class OwnerWord {
 public:
  // The two values that are no node's reference.
  static constexpr uint64_t kHandles = 0;
  static constexpr uint64_t kClosed = kOwnerGeneration;  // no node has index 0

  // kHandles, a node's reference or kClosed, at this moment.
  uint64_t Get() const noexcept { return word_.load(std::memory_order_acquire); }

  // False when it is not its handles'.
  bool MoveFromHandles(uint64_t to) noexcept {
    uint64_t expected = kHandles;
    return word_.compare_exchange_strong(expected, to, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // `reference` was found to be outdated, under its node's lock.
  void DropOutdated(uint64_t reference) noexcept {
    word_.compare_exchange_strong(reference, kHandles, std::memory_order_relaxed,
                                  std::memory_order_relaxed);
  }
  // Wins the right to close, once; with a handle. Both: take_out(to) takes what the word belongs to
  // out of its node and makes the word `to`, under the node's lock; false when it is not there any
  // more.
  template <typename TakeOut>
  bool Close(const TakeOut& take_out) {
    for (;;) {
      const uint64_t owner = Get();
      if (owner == kClosed) return false;
      if (owner == kHandles ? MoveFromHandles(kClosed) : take_out(kClosed)) return true;
    }
  }
  // No node's any more. The last handle waits here for a node that is closing.
  template <typename TakeOut>
  void LeaveNode(const TakeOut& take_out) {
    while ((Get() & kOwnerIndexMask) != 0) {
      if (take_out(kHandles)) return;
    }
  }

  // By who has the lock of the node whose it is; or the only handle, of a record that is its
  // handles'.
  void Set(uint64_t to) noexcept { word_.store(to, std::memory_order_release); }

 private:
  typename Sync::template Atomic<uint64_t> word_{kHandles};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_OWNER_WORD_H_
