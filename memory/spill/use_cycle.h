// UseCycle: in which order things are used from one end of a cycle to the next, and, where two cycles were the same, when each will
// be used again.
//
// Sequences are compared use by use, not by a hash. Things are the same in another cycle if they are that very thing, or the k-th
// that was added in its cycle, or in the cycle before (what each cycle makes anew, and what it leaves to the next one). A use that is not the
// expected one ends following it for the cycle, and a cycle has to be as the plan again before it is followed again; a
// sequence that has come twice running replaces it. No difference of this kind: uses of what was added since the plan was learned, and uses left out of what
// is gone. Cycles that differ by what is made and goes within them alone are equal, and that is in no plan.
//
// Ownership: things stay until Remove(). Threads: one at a time. Cost: a use is constant; the end of a cycle a look at each of
// its uses at most. Memory: 16 bytes a use and 40 a thing, of kMostUses uses at most; a cycle of more is not learned. Errors: none;
// what has no memory to be recorded is not learned either.
#ifndef TIDEPOOL_MEMORY_SPILL_USE_CYCLE_H_
#define TIDEPOOL_MEMORY_SPILL_USE_CYCLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tidepool::internal {

class UseCycle;

// What is used. Its numbers are the UseCycle's.
class UsedThing {
 public:
  explicit UsedThing(int64_t bytes) : bytes_(bytes) {}

 private:
  friend class UseCycle;
  static constexpr uint32_t kNone = UINT32_MAX;

  const int64_t bytes_;
  uint64_t id_ = 0;                              // 0: not added
  uint64_t born_in_ = 0;                         // which cycle
  uint64_t recorded_in_ = 0;                     // likewise
  uint32_t birth_ = kNone;                       // which one of that cycle
  uint32_t recorded_ = kNone, planned_ = kNone;  // in the recording, in the plan
};

class UseCycle {
 public:
  static constexpr size_t kMostUses = size_t{1} << 18;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // What has become of something.
  struct Outcome {
    bool followed = false;  // a use, or a whole cycle, was as the plan said, which was followed
    bool left = false;      // the plan was followed until here, and is not any more
    bool unrecorded =
        false;  // with this use the cycle has more than are recorded, and will not be learned
  };

  // A thing's first use is when it is added. Before the first EndCycle() nothing is recorded.
  Outcome Add(UsedThing& thing);
  void Remove(UsedThing& thing) noexcept;
  Outcome Use(UsedThing& thing);
  Outcome EndCycle();

  bool has_begun() const { return cycle_ > 0; }
  // By the plan, from the cycle's beginning until now.
  bool follows() const { return trusted_ && !diverged_; }

  // While it is followed. How many other uses come before the next one of it, in this cycle or the next; kNever: there is none.
  int64_t NextUse(const UsedThing& thing) const;
  // What comes after so many other uses; null: something that is not there, or beyond the next cycle.
  UsedThing* Expected(int64_t ahead) const;

 private:
  static constexpr uint32_t kNone = UsedThing::kNone;

  struct Slot {
    UsedThing* thing = nullptr;  // in the plan: the one of this cycle. Null: gone, or not made yet
    uint64_t id = 0;
    int64_t bytes = 0;
    uint32_t birth = kNone;
    uint32_t age = 0;     // 0: born in the cycle, 1: in the one before, 2: earlier
    bool passes = false;  // born in the cycle, and gone at its end
    // Of a plan's: who becomes it in the next cycle (age 0), or was it (age 1).
    uint32_t partner = kNone;
  };
  struct Recording {
    void Clear() {
      slots.clear();
      uses.clear();
      full = false;
    }
    std::vector<Slot> slots;
    std::vector<uint32_t> uses;  // which slot
    bool full = false;
  };

  void Record(UsedThing& thing);
  void GiveUp() noexcept;
  bool Repeats();
  static Recording WithoutPassing(const Recording& recording);
  static bool Correspond(const Recording& a, const Recording& b);
  Outcome Match(UsedThing& thing);
  bool SkipGone();  // expected uses of what is not there. Whether there were any
  void Adopt();
  void Bind(uint32_t slot, UsedThing* thing) noexcept;
  void BeginCycle();

  uint64_t cycle_ = 0, last_id_ = 0;
  std::vector<UsedThing*> births_;  // of this cycle, null: gone
  Recording recording_, last_;

  Recording plan_;
  std::vector<int64_t>
      next_;  // of each use: when the next one of the same is, from the cycle's beginning
  std::vector<int64_t> first_;        // of each slot
  std::vector<int64_t> slot_next_;    // likewise, as of now
  std::vector<uint32_t> birth_slot_;  // by birth; kNone: the plan has none
  uint64_t plan_id_ = 0;              // things that came later are new
  size_t cursor_ = 0;                 // in plan_.uses
  bool trusted_ = false, diverged_ = false, differs_ = false;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_SPILL_USE_CYCLE_H_
