// A learner of plans that say no more than what they are for, as PlanLearner, for shared_teacher_exploration_test.cc.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_TINY_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_TINY_LEARNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {

inline constexpr int kKinds = 2;

// A list of plans as PlanList is: shared by the learner and whoever follows, and never changed.
struct Plans {
  explorer::Sync::Plain<uint64_t> version{1};
  explorer::Sync::Plain<uint64_t> learning{0};
  explorer::Sync::Plain<bool> has[kKinds];
  explorer::Sync::Plain<uint64_t> made_in[kKinds];  // the learning that each was wanted in
  explorer::Sync::Atomic<int> holders{1};
};

// As std::shared_ptr.
class PlansHandle {
 public:
  PlansHandle() = default;
  explicit PlansHandle(Plans* made) : plans_(made) {}
  PlansHandle(const PlansHandle& other) : plans_(other.plans_) {
    if (plans_ != nullptr) plans_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  PlansHandle(PlansHandle&& other) noexcept : plans_(std::exchange(other.plans_, nullptr)) {}
  PlansHandle& operator=(PlansHandle other) noexcept {
    std::swap(plans_, other.plans_);
    return *this;
  }
  ~PlansHandle() {
    if (plans_ == nullptr || plans_->holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    explorer::Sync::Delete(plans_);
  }
  Plans* operator->() const { return plans_; }
  Plans& operator*() const { return *plans_; }

 private:
  Plans* plans_ = nullptr;
};

struct TinyCycle {
  int kind;
  bool misses;
  bool loose = false;  // what it needs is not worth its plan
  bool current = true;
};
struct TinyLesson {
  uint64_t version = 0;
  PlansHandle plans;
};
// What the plans of one learning are made on: two at once race for it.
struct Desk {
  explorer::Sync::Plain<int> plans[3];
};
struct TinyWanted {
  int kind;
  uint64_t learning;
  Desk* desk;
  bool fails;
};

// As PlanLearner, of plans that say no more than what they are for. `failures`: so many things fail, each at any
// time.
template <typename InMaking>
class TinyLearner {
 public:
  using Cycle = TinyCycle;
  using Lesson = TinyLesson;
  using Wanted = TinyWanted;
  using Kept = PlansHandle;
  using Plan = int;  // 0: none

  TinyLearner(Desk& desk, int failures) : desk_(desk), failures_(failures) {}

  uint64_t version() const { return plans_->version.get(); }
  size_t unplanned_bytes() const { return missed_.get(); }
  Lesson lesson() const { return {version(), plans_}; }
  Kept kept() const { return plans_; }

  static bool AsExpected(const Cycle& cycle) noexcept { return !cycle.misses; }
  std::optional<Wanted> Observe(const Cycle& cycle) {
    if (cycle.misses) missed_.set(missed_.get() + 1);
    if (found_.get()) {
      found_.set(false);
      Replace(Copy());
    }
    if (MayFail()) throw std::bad_alloc();
    if (!cycle.current || !cycle.misses) return std::nullopt;
    if (cycle.loose && plans_->has[cycle.kind].get()) {
      Plans* const plans = Copy();
      plans->has[cycle.kind].set(false);
      Replace(plans);
      given_up_.set(given_up_.get() + 1);
      return std::nullopt;
    }
    explorer::Check(!plans_->has[cycle.kind].get(),
                    "who followed what is learned now has missed what it has");
    if (!in_making_.Begin()) return std::nullopt;
    return Wanted{cycle.kind, in_making_.learning(), &desk_, MayFail()};
  }
  static Plan MakePlan(const Wanted& wanted, const Cycle& cycle) {
    explorer::Check(wanted.kind == cycle.kind, "it is made of the cycle that wanted it");
    auto& plans = wanted.desk->plans[wanted.learning];
    plans.set(plans.get() + 1);
    if (wanted.fails) throw std::bad_alloc();
    return 1;
  }
  void Adopt(const Wanted& wanted, Plan plan) {
    if (!in_making_.End(wanted.learning) || plan == 0) return;
    if (MayFail()) throw std::bad_alloc();
    Plans* const plans = Copy();
    plans->has[wanted.kind].set(true);
    plans->made_in[wanted.kind].set(wanted.learning);
    Replace(plans);
  }
  void Forget() {
    in_making_.Forget();
    Plans* const plans = explorer::Sync::New<Plans>();
    plans->version.set(version() + 1);
    plans->learning.set(plans_->learning.get() + 1);
    Replace(plans);
  }
  void Failed(const std::exception_ptr&) noexcept { failed_.set(failed_.get() + 1); }
  void Changed() noexcept { changes_.set(changes_.get() + 1); }

  int missed() const { return missed_.get(); }
  int given_up() const { return given_up_.get(); }
  // A better plan, which the next cycle that is observed takes.
  void FindBetter() { found_.set(true); }
  void FailNoMore() { failures_.set(0); }

 private:
  bool MayFail() {
    if (failures_.get() == 0 || explorer::Choose(2) == 0) return false;
    failures_.set(failures_.get() - 1);
    return true;
  }
  Plans* Copy() const {
    Plans* const plans = explorer::Sync::New<Plans>();
    plans->version.set(version() + 1);
    plans->learning.set(plans_->learning.get());
    for (int kind = 0; kind < kKinds; ++kind) {
      plans->has[kind].set(plans_->has[kind].get());
      plans->made_in[kind].set(plans_->made_in[kind].get());
    }
    return plans;
  }

  void Replace(Plans* plans) {
    explorer::Check(plans_->holders.load(std::memory_order_relaxed) > 1,
                    "what is left ends without the lock");
    plans_ = PlansHandle(plans);
  }

  Desk& desk_;
  PlansHandle plans_{explorer::Sync::New<Plans>()};
  InMaking in_making_;
  explorer::Sync::Plain<bool> found_{false};
  explorer::Sync::Plain<int> failures_;
  explorer::Sync::Plain<int> missed_{0};
  explorer::Sync::Plain<int> given_up_{0};
  explorer::Sync::Plain<int> failed_{0};
  explorer::Sync::Plain<int> changes_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_TINY_LEARNER_H_
