// SharedLearner: what many workspaces learn together. A cycle that one of them has had, all of them know.
//
// Each follows a Lesson of its own, which never changes once given, and looks at version() before a cycle
// whether there is another. Nothing here is on the way of a request. Plans are made by the thread whose cycle
// wanted one, without the lock, one at a time; cycles that end meanwhile teach nothing new. A cycle that
// followed an older lesson than the latest does not judge it.
//
// Threads: any. Cost of Observe(): a lock and what PlanLearner::Observe costs; a cycle that went as expected
// does not wait for the lock and is not counted when others have it. Errors: none; without memory to learn,
// the next cycle tries again, and other errors are told on stderr once.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/plan_search.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class SharedLearner {
 public:
  struct Counts {
    uint64_t plans_made = 0;
    uint64_t plans_improved = 0;
    uint64_t cycles_not_planned = 0;
    size_t plans_kept = 0;
  };

  // All of these must live as long. `id`: for messages. Its own memory is on the ledger as the owner's.
  SharedLearner(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                MemoryOwner& owner);
  ~SharedLearner();
  SharedLearner(const SharedLearner&) = delete;
  SharedLearner& operator=(const SharedLearner&) = delete;

  // Another number when there is something new.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  Lesson lesson() const;
  // How large a range is that serves a cycle that no plan does; 0: such do not come again.
  size_t unplanned_bytes() const { return unplanned_bytes_.load(std::memory_order_relaxed); }

  // A cycle has ended well that followed the lesson of that version.
  void Observe(EndedCycle cycle, uint64_t version) noexcept;

  // What was learned, the last used first. Throws std::bad_alloc.
  std::vector<std::shared_ptr<LearnedCycle>> plans() const;
  // As PlanLearner's.
  size_t Load(std::vector<PlacedRequests> cycles, const std::string& path, std::string* ignored);
  void Forget() noexcept;
  // Waits for the background search for better plans and takes what it found.
  void FinishPlanSearch();
  Counts counts() const;

 private:
  void Changed() noexcept;  // with the lock
  void TakeBetterPlan();    // likewise; throws as PlanLearner::Improve
  void MakePlan(const WantedPlan& wanted, const EndedCycle& cycle) noexcept;
  void CannotLearn(const char* why) noexcept;

  const std::string& id_;
  const size_t alignment_;
  const double search_seconds_;
  MemoryOwner& owner_;

  mutable std::mutex mutex_;
  PlanLearner learner_;  // guarded by mutex_, as all below
  PlanSearch search_;
  int64_t state_reported_ = 0;
  bool told_ = false;
  std::atomic<uint64_t> version_;  // written with the lock
  std::atomic<size_t> unplanned_bytes_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SHARED_LEARNER_H_
