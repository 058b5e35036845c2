// The cycles that were learned: one under kOptimized, any number under kTraining.
//
// Each is known by the sizes of its requests in order. A cycle that turns out to be another one
// than was expected is recognised by what it has requested so far.
//
// What is kept: plans of at most kFewBytes of heap memory and as much as the pages of the largest of them, together
// `most_bytes`: what is written down of many kinds of cycles is not far more than what it serves. When there is no
// room, the one that was
// used longest ago goes for one that is surely wanted, else only if it was not used for so long that
// the cycles would not take turns at being forgotten. Plans that need a quarter more pages than all
// others (outliers: one huge batch) are kept only while they are used: kPatience cycles without them
// and they are forgotten. Each use doubles the patience of a plan up to kMostPatience, and what comes
// back after it was forgotten has four times the patience, or twice the cycles it has stayed away, up to
// kMostCyclesAway: so what is rare but regular stays, and kinds that come in bursts do. Plans that are a
// sixteenth larger than all that were used in the last kMostUnused cycles (or four times as many as there
// are plans, or their patience) are forgotten whatever the others need.
//
// Threads: one at a time; list() and what it holds may be read by any, while others change the set.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/sync/single_writer.h"
#include "tidepool/memory/workspace/cycle_plan.h"

namespace tidepool {

// The repetitions of a cycle, until it is looked at whether less would do for it.
struct RepetitionWatch {
  static constexpr int kFirst = 8;
  uint64_t since = 0;  // the cycle before the first of them
  int repetitions = 0;
  int refresh_after = kFirst;
  MappedVector<LifetimeBuffer>
      seen;  // in those that were looked at: each request's longest lifetime
  int seen_cycles = 0;
  size_t most_alive = 0;  // at once in one of them; bytes
  int not_before = 0;     // repetitions until the next of them

  int next_look() const { return std::max(refresh_after, not_before); }
  // Twice as long, up to `most` or what it is already.
  void WaitLonger(int most) noexcept {
    refresh_after = std::max(refresh_after, std::min(most, 2 * refresh_after));
  }
  // It is looked at anew from here on.
  void Restart() noexcept {
    repetitions = seen_cycles = not_before = 0;
    most_alive = 0;
    MappedVector<LifetimeBuffer>().swap(seen);
  }
};

// What is known of a cycle that is planned, for the set and the learner alone. Counted in cycles
// that had ended.
struct CycleHistory {
  uint64_t came_at = 0;  // its own cycle did; others use it too, where it serves them
  uint64_t seen_at = 0;  // likewise, but it may have left its plan
  uint64_t away = 0;     // the longest that it stayed away and came back
  uint64_t learned_at = 0;
  uint64_t patience = 0;
  // Which cycle came next, the last time; of no requests: it is not known.
  uint64_t then_signature = 0;
  size_t then_requests = 0;
  RepetitionWatch watch;
  uint32_t remade = 0;   // how many plans of the same requests it replaced
  uint32_t regrets = 0;  // how often it was planned for shorter lifetimes and longer ones came back
  size_t most_alive = 0;  // bytes at once in one of its cycles, of those that were looked at
  bool paid = false;      // it was worth making: cycles follow it
  uint64_t followed = 0;  // how often, to its end
  uint64_t running = 0;   // likewise, since it was away for long
  uint32_t debt = 0;     // cycles that are to follow it until it is not lost (PlanningEffort::Lose)
  bool guessed = false;  // made when its cycle was first seen
  bool goes = false;     // is being forgotten
  // Of a cycle that memory was refused in, up to there, and no cycle has followed it to its end: the others do not go by it.
  bool refused = false;
  bool loaded = false;  // of a file, and no cycle has followed it yet: pages are not made for it
  // Made of the lifetimes of a few cycles, whatever there were before: then, the last time.
  bool alone = false;
  uint64_t alone_at = 0;
  // Until where its requests lived in cycles that it was not planned anew for; empty: none since it was made.
  MappedVector<int64_t> longest;
  // Instead of which that was, as long as the plan has the shorter ones.
  std::shared_ptr<const CyclePlan> longer;

  // Other lifetimes of the same requests do, so what they were of late is not what they will be.
  bool comes_in_turns() const { return regrets >= kFewRegrets; }
  static constexpr uint32_t kFewRegrets = 3;
};

// A plan and how it was used.
struct LearnedCycle : CycleHistory {
  explicit LearnedCycle(std::shared_ptr<const CyclePlan> its_plan) : plan(std::move(its_plan)) {}

  const std::shared_ptr<const CyclePlan> plan;
  SingleWriter<uint64_t> used_at;  // by any cycle
};

// In an order in which those that begin alike are neighbours. Never changed once it is a set's: the next one shares
// with it all parts but those that change, so that one plan of thousands comes and goes at the cost of a few dozen.
class PlanList {
 public:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
    // The ends of it, where they are known, as long as the list is.
    const CyclePlan* first = nullptr;
    const CyclePlan* last = nullptr;
    bool empty() const { return begin == end; }
  };

  // An empty one.
  static const std::shared_ptr<const PlanList>& None();

  // O(log plans) beyond kMostOfPart plans.
  const LearnedCycle& operator[](uint32_t i) const {
    const Part& part = parts_.size() == 1 ? parts_.front() : PartOf(i);
    return *part.chunk->entries[i - part.begin].cycle;
  }
  size_t size() const { return size_; }
  template <typename Visit>
  void ForEach(Range range, const Visit& visit) const {
    if (range.empty()) return;
    for (size_t part = PartAt(range.begin); range.begin < range.end; ++part) {
      const Entries& entries = parts_[part].chunk->entries;
      size_t i = range.begin - parts_[part].begin;
      for (; i < entries.size() && range.begin < range.end; ++i, ++range.begin)
        visit(*entries[i].cycle);
    }
  }
  // Of the plan that has most of them.
  size_t most_requests() const;
  // Of those that need at most `most_peak` bytes of pages and begin with a request of at least so many bytes within them,
  // the one with the smallest. Null: none does.
  const LearnedCycle* SmallestThatBegins(size_t bytes, size_t most_peak) const;
  size_t state_bytes() const;
  // Those whose first `count` requests are those of `plan`. O(log cycles * log requests).
  Range Like(const CyclePlan& plan, uint32_t count) const {
    return Like(plan, count, {0, static_cast<uint32_t>(size_)});
  }
  // The same where they are known to be `among` these. A look at two of them when it is all.
  Range Like(const CyclePlan& plan, uint32_t count, const Range& among) const;
  // Leaves those of `range`, which begin alike in `slot` requests, that request what makes `signature` next.
  // A few instructions when it is all of them.
  void Narrow(uint32_t slot, uint64_t signature, Range* range) const;

 private:
  friend class PlanSet;
  using Cycles = std::vector<std::shared_ptr<const LearnedCycle>>;
  static constexpr size_t kMostOfPart = 64;
  struct Entry {
    explicit Entry(std::shared_ptr<const LearnedCycle> its_cycle);
    std::shared_ptr<const LearnedCycle> cycle;
    size_t requests;     // how many
    size_t first_bytes;  // of the first
  };
  using Entries = std::vector<Entry>;
  struct Chunk {
    Entries entries;
    size_t most_requests = 0;
    size_t most_first_bytes = 0;
  };
  struct Part {
    uint32_t begin;
    std::shared_ptr<const Chunk> chunk;
    size_t size() const { return chunk->entries.size(); }
  };

  // In whatever order.
  static std::shared_ptr<PlanList> Of(Cycles cycles);
  static std::shared_ptr<PlanList> OfSorted(Cycles cycles);
  // These throw std::bad_alloc; it is of no use then.
  void Insert(std::shared_ptr<const LearnedCycle> cycle);
  void Erase(const LearnedCycle& cycle);
  void Replace(const LearnedCycle& cycle, std::shared_ptr<const LearnedCycle> by);

  static std::shared_ptr<const Chunk> MakeChunk(Entries entries);
  // The first of [begin, end) for which `before` is false.
  template <typename Before>
  uint32_t PartitionPoint(uint32_t begin, uint32_t end, const Before& before) const;
  const Part& PartOf(uint32_t i) const { return parts_[PartAt(i)]; }
  size_t PartAt(uint32_t i) const;
  uint32_t PlaceOf(const LearnedCycle& cycle) const;  // size(): nowhere
  void SetBegins(size_t from_part) noexcept;

  std::vector<Part> parts_;
  size_t size_ = 0;
};

class PlanSet {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr size_t kFewBytes = size_t{16} << 20;
  static constexpr uint64_t kPatience = 3;  // cycles
  static constexpr uint64_t kMostPatience = 192;
  static constexpr uint64_t kMostCyclesAway = 1 << 14;
  static constexpr uint64_t kMostUnused = 256;

  // `most_plans`: at least 1, of which one is kept whatever its size.
  explicit PlanSet(size_t most_plans = SIZE_MAX, size_t most_bytes = kMostBytes)
      : most_plans_(most_plans), most_bytes_(most_bytes), list_(PlanList::None()) {}

  bool empty() const { return cycles_.empty(); }
  size_t size() const { return cycles_.size(); }
  using Cycles = std::list<std::shared_ptr<LearnedCycle>>;
  // Most recently used first, as of their last Use().
  const Cycles& cycles() const { return cycles_; }
  // The same, for who follows them.
  const std::shared_ptr<const PlanList>& list() const { return list_; }
  // Of the largest plan that is not only loaded: what the pages must hold.
  size_t peak_bytes() const { return peak_bytes_; }
  // Of the largest of the others; 0: there are none.
  size_t loaded_peak_bytes() const { return loaded_peak_bytes_; }
  size_t state_bytes() const;  // heap memory
  // That plans may have where the largest needs pages of `peak` bytes.
  size_t most_bytes(size_t peak) const {
    return std::min(most_bytes_, kFewBytes + std::min(peak, most_bytes_));
  }

  bool Holds(const LearnedCycle* cycle) const;
  // The cycle with exactly these requests; null if there is none.
  LearnedCycle* Find(uint64_t signature, size_t num_requests) const;
  // Whether there is room for another plan, perhaps that of one that was not used for long; or, when
  // it is `surely` wanted, of any.
  bool HasRoom(uint64_t now, bool surely);
  // Takes the place of one with the same requests; else, when there is no room, of those that were
  // used longest ago. `loaded`: of a file. Throws std::bad_alloc, nothing changed.
  LearnedCycle* Add(std::shared_ptr<const CyclePlan> plan, uint64_t now, bool loaded = false);
  // Plans are others of the same requests, and all else as it was. Those that are not here any more are left out.
  // Throws likewise.
  struct Replacement {
    std::shared_ptr<const CyclePlan> plan;
    std::shared_ptr<const CyclePlan> by;
  };
  void Replace(absl::Span<const Replacement> replacements);
  // `cycle` was the last one, and when `followed` it was the very one, to its end.
  void Use(const LearnedCycle* cycle, uint64_t now, bool followed);
  // That Use() was last called of, or Add().
  LearnedCycle& last_used() { return *cycles_.front(); }
  // It is made of a few cycles, or not. `longer`: the plan that it is instead of; null: what there
  // was stays.
  void SetAlone(bool alone, uint64_t now, std::shared_ptr<const CyclePlan> longer) noexcept;
  // Forgets outliers whose patience is over. True if there were any.
  bool ForgetOutliers(uint64_t now) noexcept;
  // In how many cycles that use the last used one again ForgetOutliers() may first do something.
  uint64_t CyclesUntilOutlier(uint64_t now) const noexcept;
  // Forgets those for whose sake all cycles that begin alike get larger pages, though they have not come for long
  // (four times kMostUnused, longer for what came back): for who takes pages when the first request is known. True
  // if there were any. O(plans).
  bool ForgetInTheWay(uint64_t now) noexcept;
  // Forgets those that were guessed and have not paid; `saw` is called with the signature of each. True if there were
  // any.
  bool ForgetGuesses(const std::function<void(uint64_t)>& saw) noexcept;
  // Forgets those that `goes` is said of.
  void ForgetThoseThatGo() noexcept;
  // Looks at a few plans each time, one after the other, all of them within some dozens of calls: `visit` is called with each.
  template <typename Visit>
  void VisitSome(const Visit& visit) {
    constexpr size_t kFew = 8, kShare = 32;
    const size_t buckets = by_key_.bucket_count();
    for (size_t left = kFew + buckets / kShare; left > 0 && !cycles_.empty(); --left) {
      visited_ = visited_ + 1 < buckets ? visited_ + 1 : 0;
      for (auto at = by_key_.begin(visited_); at != by_key_.end(visited_); ++at)
        visit(**at->second);
    }
  }
  // Forgets those that begin with a request of so many bytes.
  void ForgetBeginning(size_t first_bytes) noexcept;
  // Forgets this one, which is there.
  void Forget(const LearnedCycle* cycle) noexcept;
  // Forgets those that need more than `bytes` of pages.
  void ForgetLarger(size_t bytes) noexcept;
  void Clear() noexcept;

 private:
  // What was forgotten, when it was last used, and how patient to be at least if it comes back.
  struct Forgotten {
    uint64_t signature;
    uint64_t used_at;
    uint64_t patience;
  };
  static uint64_t Key(uint64_t signature, size_t num_requests) {
    return ExtendSignature(signature, num_requests);
  }
  static uint64_t Key(const CyclePlan& plan) { return Key(plan.signature(), plan.requests.size()); }
  static size_t BytesOf(const LearnedCycle& cycle) {
    return sizeof(LearnedCycle) + cycle.plan->state_bytes() +
           (cycle.longer != nullptr ? cycle.longer->state_bytes() : 0);
  }
  bool list_is_whole() const { return list_->size() == cycles_.size(); }
  LearnedCycle* Put(std::shared_ptr<LearnedCycle> cycle, const LearnedCycle* same);
  uint64_t MostUnused() const noexcept;
  template <typename Goes>
  bool ForgetAll(const Goes& goes) noexcept;
  void Remember(const LearnedCycle& cycle) noexcept;
  void Changed() noexcept;
  void Sum() noexcept;

  size_t most_plans_;
  size_t most_bytes_;
  Cycles cycles_;
  std::unordered_map<uint64_t, Cycles::iterator> by_key_;
  std::shared_ptr<const PlanList> list_;
  size_t peak_bytes_ = 0;
  size_t loaded_peak_bytes_ = 0;
  size_t plan_bytes_ = 0;
  const LearnedCycle* largest_ = nullptr;  // the first of those with the highest peak
  uint64_t looked_at_ = 0;                 // for outliers, last
  size_t visited_ = 0;                     // the bucket of by_key_, last
  uint64_t used_first_ = 0;                // no plan was used before
  std::vector<Forgotten> forgotten_;       // the latest last
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_
