// SharedLearner: what many workspaces learn together. A cycle that one of them has had, all of them know.
//
// Each follows a Lesson of its own, which never changes once given, and looks at version() before a cycle
// whether there is another (shared_teacher.h: how threads take turns). Nothing here is on the way of a request.
// Plans are made by the thread whose cycle wanted one, without the lock, one at a time; cycles that end
// meanwhile teach nothing new. A cycle that followed an older lesson than the latest does not judge it.
//
// Threads: any. Cost of Observe(): a lock and what PlanLearner::Observe costs; a cycle that went as expected
// does not wait for the lock and is not counted when others have it. Errors: none; without memory to learn,
// the next cycle tries again, and other errors are told on stderr once.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/sync/single_writer.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/plan_search.h"
#include "tidepool/memory/workspace/shared_teacher.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class SharedLearner {
 public:
  struct Counts {
    uint64_t plans_made = 0;
    uint64_t plans_improved = 0;
    uint64_t cycles_not_planned = 0;
    uint64_t plans_given_up = 0;
    size_t plans_kept = 0;
  };

  // All of these must live as long. `id`: for messages. Its own memory is on the ledger as the owner's.
  SharedLearner(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                MemoryOwner& owner)
      : teacher_(id, config, alignment, owner, counts_) {}

  // Another number when there is something new.
  uint64_t version() const { return teacher_.version(); }
  Lesson lesson() const { return teacher_.lesson(); }
  // How large a range is that serves a cycle that no plan does; 0: such do not come again.
  size_t unplanned_bytes() const { return teacher_.unplanned_bytes(); }

  // A cycle has ended well that followed the lesson of that version.
  void Observe(EndedCycle cycle, uint64_t version) noexcept {
    teacher_.Observe(std::move(cycle), version);
  }

  // What was learned, the last used first. Throws std::bad_alloc.
  std::vector<std::shared_ptr<LearnedCycle>> plans() const;
  // As PlanLearner's.
  size_t Load(std::vector<PlacedRequests> cycles, const std::string& path, size_t believed,
              std::string* ignored);
  void Forget() noexcept;
  std::string Report() const;  // likewise
  // Waits for the background search for better plans and takes what it found.
  void FinishPlanSearch();
  // As of the last cycle that was learned from. No lock is taken.
  Counts counts() const noexcept {
    return {counts_.plans_made, counts_.plans_improved, counts_.cycles_not_planned,
            counts_.plans_given_up, counts_.plans_kept};
  }

 private:
  struct WatchedCounts {
    SingleWriter<uint64_t> plans_made;
    SingleWriter<uint64_t> plans_improved;
    SingleWriter<uint64_t> cycles_not_planned;
    SingleWriter<uint64_t> plans_given_up;
    SingleWriter<size_t> plans_kept;
  };

  // What is learned, the search for better plans and what is told of both, as SharedTeacher calls it.
  class Learner {
   public:
    using Cycle = EndedCycle;
    using Lesson = tidepool::Lesson;
    using Wanted = WantedPlan;
    using Plan = MadePlans;
    using Kept = std::shared_ptr<const PlanList>;

    Learner(const std::string& id, const WorkspaceConfig& config, size_t alignment,
            MemoryOwner& owner, WatchedCounts& counts);
    ~Learner();

    uint64_t version() const { return learner_.version(); }
    Lesson lesson() const { return learner_.lesson(); }
    size_t unplanned_bytes() const { return learner_.unplanned_bytes(); }
    Kept kept() const { return learner_.plans().list(); }

    static bool AsExpected(const EndedCycle& cycle) noexcept {
      return cycle.misses == 0 && cycle.followed != nullptr && cycle.refused == nullptr;
    }
    std::optional<WantedPlan> Observe(const EndedCycle& cycle);
    static Plan MakePlan(const WantedPlan& wanted, const EndedCycle& cycle) {
      return PlanLearner::MakePlan(wanted, cycle);
    }
    void Adopt(const WantedPlan& wanted, const Plan& plan);
    void Failed(const std::exception_ptr& why) noexcept;
    void Changed() noexcept;

    const PlanSet& plans() const { return learner_.plans(); }
    size_t Load(std::vector<PlacedRequests> cycles, const std::string& path, size_t believed,
                std::string* ignored);
    void Forget() noexcept;
    std::string Report() const { return learner_.Report(); }
    std::shared_ptr<PlanTicket> search() const { return search_.ticket(); }
    void TakeBetterPlan();  // throws as PlanLearner::Improve

   private:
    const std::string& id_;
    const size_t alignment_;
    const double search_seconds_;
    MemoryOwner& owner_;
    WatchedCounts& counts_;
    PlanLearner learner_;
    PlanSearch search_;
    uint64_t reported_version_;
    int64_t state_reported_ = 0;
    bool told_ = false;
  };

  WatchedCounts counts_;  // written with the lock
  SharedTeacher<StdSync, Learner> teacher_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_
