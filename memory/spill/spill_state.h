// SpillState: where the bytes of one thing are that may be written away while nobody uses it.
//
// Invariants, whatever threads do at once:
// - what is pinned stays: who begins to move it has it alone, and begins only where there are no pins;
// - who has a pin sees what everybody did with earlier pins, and all that the mover did;
// - of those who come while it is away, one brings it and the others wait for him; where he fails, the next one tries;
// - what is being written beside everybody is pinned by nobody: who comes first ends the write, or gives it up, alone.
//
// One word: pins where it is here, else one of four values below 0. Orders: acquire where a pin or the right to move is
// taken, release where it is given back; each is explored without (spill_state_exploration_test).
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_STATE_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_STATE_H_

#include <atomic>

namespace tidepool {

template <typename Sync>
class SpillState {
 public:
  enum class Found { kHere, kAway, kComing, kGoing };

  // A pin; what is found where it is not kHere is the caller's to bring (kComing: a read that was begun is to be waited for),
  // who says Brought() or StaysAway() then. kGoing: it is here, and its write to be ended or given up before Brought(). Waits while another one moves it; where `may_wait` is false it takes no pin then, and
  // returns false.
  bool Pin(Found* found, bool may_wait = true) {
    int now = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (now == kMoving) {
        if (!may_wait) return false;
        word_.wait(kMoving, std::memory_order_relaxed);
        now = word_.load(std::memory_order_relaxed);
        continue;
      }
      const int next = now >= 0 ? now + 1 : kMoving;
      if (!word_.compare_exchange_weak(now, next, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        continue;
      }
      *found = FoundAs(now);
      return true;
    }
  }
  void Brought() { End(1); }
  void StaysAway() { End(kAway); }
  void Unpin() { word_.fetch_sub(1, std::memory_order_release); }

  // To write it away. False: it is pinned, away or being moved. What is found is kHere; kComing: what was read ahead is to be
  // given up; or kGoing: its write is to be ended. Spilled() or StaysHere() are to follow, the latter not after kComing; or
  // what it was found as: Comes(), Goes().
  bool BeginSpill(Found* found) {
    int now = word_.load(std::memory_order_relaxed);
    while (now == 0 || now == kComing || now == kGoing) {
      if (!word_.compare_exchange_weak(now, kMoving, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        continue;
      }
      *found = FoundAs(now);
      return true;
    }
    return false;
  }
  void Spilled() { End(kAway); }
  void StaysHere() { End(0); }
  // By who has begun to spill: it is here still, and its bytes are written from now on beside whatever happens.
  void Goes() { End(kGoing); }

  // To begin a read ahead of use. False: it is not away. Comes() or StaysAway() are to follow.
  bool BeginComing() {
    int now = kAway;
    return word_.compare_exchange_strong(now, kMoving, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void Comes() { End(kComing); }

  // Of some moment. It has memory where it is coming as well.
  bool has_memory() const {
    const int now = word_.load(std::memory_order_relaxed);
    return now >= 0 || now == kComing || now == kGoing;
  }
  bool is_here() const {
    const int now = word_.load(std::memory_order_relaxed);
    return now >= 0 || now == kGoing;
  }
  bool is_away() const { return word_.load(std::memory_order_relaxed) == kAway; }
  int pins() const {
    const int now = word_.load(std::memory_order_relaxed);
    return now > 0 ? now : 0;
  }

 private:
  static constexpr int kAway = -1, kMoving = -2, kComing = -3, kGoing = -4;

  static Found FoundAs(int word) {
    return word >= 0         ? Found::kHere
           : word == kAway   ? Found::kAway
           : word == kComing ? Found::kComing
                             : Found::kGoing;
  }

  void End(int next) {
    word_.store(next, std::memory_order_release);
    word_.notify_all();
  }

  typename Sync::template Atomic<int> word_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_STATE_H_
