// Followers that teach one learner, under every interleaving: lessons are whole and as new as was said, plans are
// made one at a time, adopted or given up, and never after they were forgotten.
#include "tidepool/memory/workspace/shared_teacher.h"

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/workspace/plan_in_making.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;
using explorer::Sync;

constexpr int kKinds = 2;

// A list of plans as PlanList is: shared by the learner and whoever follows, and never changed.
struct Plans {
  Sync::Plain<uint64_t> version{1};
  Sync::Plain<uint64_t> learning{0};
  Sync::Plain<bool> has[kKinds];
  Sync::Plain<uint64_t> made_in[kKinds];  // the learning that each was wanted in
  Sync::Atomic<int> holders{1};
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
    Sync::Delete(plans_);
  }
  Plans* operator->() const { return plans_; }
  Plans& operator*() const { return *plans_; }

 private:
  Plans* plans_ = nullptr;
};

struct TinyCycle {
  int kind;
  bool misses;
  bool current = true;
};
struct TinyLesson {
  uint64_t version = 0;
  PlansHandle plans;
};
// What the plans of one learning are made on: two at once race for it.
struct Desk {
  Sync::Plain<int> plans[3];
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
    Check(!plans_->has[cycle.kind].get(), "who followed what is learned now has missed what it has");
    if (!in_making_.Begin()) return std::nullopt;
    return Wanted{cycle.kind, in_making_.learning(), &desk_, MayFail()};
  }
  static Plan MakePlan(const Wanted& wanted, const Cycle& cycle) {
    Check(wanted.kind == cycle.kind, "it is made of the cycle that wanted it");
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
    Plans* const plans = Sync::New<Plans>();
    plans->version.set(version() + 1);
    plans->learning.set(plans_->learning.get() + 1);
    Replace(plans);
  }
  void Failed(const std::exception_ptr&) noexcept { failed_.set(failed_.get() + 1); }
  void Changed() noexcept { changes_.set(changes_.get() + 1); }

  int missed() const { return missed_.get(); }
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
    Plans* const plans = Sync::New<Plans>();
    plans->version.set(version() + 1);
    plans->learning.set(plans_->learning.get());
    for (int kind = 0; kind < kKinds; ++kind) {
      plans->has[kind].set(plans_->has[kind].get());
      plans->made_in[kind].set(plans_->made_in[kind].get());
    }
    return plans;
  }

  void Replace(Plans* plans) {
    Check(plans_->holders.load(std::memory_order_relaxed) > 1, "what is left ends without the lock");
    plans_ = PlansHandle(plans);
  }

  Desk& desk_;
  PlansHandle plans_{Sync::New<Plans>()};
  InMaking in_making_;
  Sync::Plain<bool> found_{false};
  Sync::Plain<int> failures_;
  Sync::Plain<int> missed_{0};
  Sync::Plain<int> failed_{0};
  Sync::Plain<int> changes_{0};
};

// As a workspace of a pool (pooled_core.cc).
template <typename Teacher>
class Follower {
 public:
  explicit Follower(Teacher& teacher) : teacher_(teacher) {}

  // Returns whether it missed.
  bool Serve(int kind) {
    const uint64_t said = teacher_.version();
    if (said != followed_) {
      lesson_ = teacher_.lesson();
      Check(lesson_.version >= said, "a lesson is as new as was said");
      Check(lesson_.version > followed_, "a follower does not go back");
      followed_ = lesson_.version;
    }
    const bool misses = !Follows(kind);
    teacher_.Observe({kind, misses}, followed_);
    // All others may have given it up.
    Check(lesson_.plans->version.get() == lesson_.version, "what is followed does not change");
    return misses;
  }

 private:
  bool Follows(int kind) const {
    const Plans& plans = *lesson_.plans;
    Check(plans.version.get() == lesson_.version, "a lesson is of one piece");
    const bool has = plans.has[kind].get();
    Check(!has || plans.made_in[kind].get() == plans.learning.get(),
          "no plan is from before all was forgotten");
    return has;
  }

  Teacher& teacher_;
  TinyLesson lesson_;
  uint64_t followed_ = 0;
};

template <typename Policy = Sync, typename InMaking = PlanInMaking<Sync>>
struct School {
  using Teacher = SharedTeacher<Policy, TinyLearner<InMaking>>;

  explicit School(int failures = 0) : teacher(desk, failures) {}

  // One thread's cycles.
  void Serve(int first, int second = -1) {
    Follower<Teacher> follower(teacher);
    if (follower.Serve(first)) missed.fetch_add(1, std::memory_order_relaxed);
    if (second >= 0 && follower.Serve(second)) missed.fetch_add(1, std::memory_order_relaxed);
  }
  void Forget() {
    teacher.Change([](auto& learner) { learner.Forget(); });
  }
  // Whatever became of plans, a kind that comes again is planned.
  void CheckEnd() {
    teacher.Read([this](const auto& learner) {
      Check(learner.missed() == missed.load(), "each cycle that misses teaches");
      Check(teacher.version() == learner.version() &&
                teacher.unplanned_bytes() == learner.unplanned_bytes(),
            "what is new is told");
    });
    teacher.Change([](auto& learner) { learner.FailNoMore(); });
    for (int kind = 0; kind < kKinds; ++kind) {
      Follower<Teacher> follower(teacher);
      follower.Serve(kind);
      Check(!follower.Serve(kind), "no plan is in the making for ever");
    }
  }

  Desk desk;
  Teacher teacher;
  Sync::Atomic<int> missed{0};
};

template <typename School = School<>>
void TwoOfOneKindAndOneForgets(Execution& execution) {
  auto& school = execution.Make<School>();
  execution.Thread([&school] { school.Serve(0, 0); });
  execution.Thread([&school] { school.Serve(0); });
  execution.Thread([&school] { school.Forget(); });
  execution.AtEnd([&school] { school.CheckEnd(); });
}

void TwoOfTwoKinds(Execution& execution) {
  auto& school = execution.Make<School<>>();
  execution.Thread([&school] { school.Serve(0, 1); });
  execution.Thread([&school] { school.Serve(1, 0); });
  execution.AtEnd([&school] { school.CheckEnd(); });
}

// What is followed is another list, though nothing was forgotten.
void ABetterPlanIsFound(Execution& execution) {
  auto& school = execution.Make<School<>>();
  execution.Thread([&school] { school.Serve(0); });
  execution.Thread([&school] {
    school.teacher.Change([](auto& learner) { learner.FindBetter(); });
    school.Serve(0, 1);
  });
  execution.AtEnd([&school] { school.CheckEnd(); });
}

// Memory for what is learned, for a plan or for adopting it.
template <typename School = School<>>
void SomethingFails(Execution& execution) {
  auto& school = execution.Make<School>(/*failures=*/1);
  execution.Thread([&school] { school.Serve(0, 1); });
  execution.Thread([&school] { school.Serve(0); });
  execution.AtEnd([&school] { school.CheckEnd(); });
}

// While a plan is made all is forgotten, by who follows next, and the same is wanted again.
template <typename School = School<>, int failures = 0>
void ForgottenWhileItIsMade(Execution& execution) {
  auto& school = execution.Make<School>(failures);
  execution.Thread([&school] { school.Serve(0); });
  execution.Thread([&school] {
    school.Forget();
    school.Serve(0, 0);
  });
  execution.AtEnd([&school] { school.CheckEnd(); });
}

TEST(SharedTeacherExplored, LessonsAreWholeAndNoPlanIsLost) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"two of one kind, one forgets", TwoOfOneKindAndOneForgets<>, 2},
      {"two of two kinds", TwoOfTwoKinds, 2},
      {"a better plan is found", ABetterPlanIsFound, 2},
      {"something fails", SomethingFails<>, 2},
      {"forgotten while it is made", ForgottenWhileItIsMade<>, 3},
      {"forgotten, and something fails", ForgottenWhileItIsMade<School<>, 1>, 2},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

TEST(SharedTeacherExplored, NoOrderIsStrongerThanItNeedsToBe) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "teacher", .preemptions = 1}, [](Execution& execution) {
        switch (explorer::Choose(3)) {
          case 0: return TwoOfTwoKinds(execution);
          case 1: return TwoOfOneKindAndOneForgets(execution);
          default: return ForgottenWhileItIsMade(execution);
        }
      });
  std::printf("%s\n", table.report().c_str());
  EXPECT_TRUE(table.original.passed()) << table.report();
  for (const explorer::MutationTable::Row& row : table.rows) {
    EXPECT_TRUE(row.detected() || !row.where.starts_with("shared_teacher.h")) << row.text();
  }
}

// What the table does not leave out.
struct WithoutLocks : Sync {
  struct Mutex {
    void lock() {}
    bool try_lock() { return true; }
    void unlock() {}
  };
};
// Adopts what comes, whatever was forgotten meanwhile.
struct AnyPlanWillDo : PlanInMaking<Sync> {
  bool End(uint64_t) noexcept { return PlanInMaking<Sync>::End(learning()); }
};
// Forgets all but that one is being made.
struct IsStillMade : PlanInMaking<Sync> {
  void Forget() noexcept {
    const bool begins = Begin();
    PlanInMaking<Sync>::Forget();
    if (!begins) Begin();
  }
};
// Lets any number be made.
struct SeveralAreMade : PlanInMaking<Sync> {
  bool Begin() noexcept {
    PlanInMaking<Sync>::Begin();
    return true;
  }
};

TEST(SharedTeacherExplored, AllOfItIsNeeded) {
  struct {
    const char* without;
    void (*body)(Execution&);
    FailureKind failure;
    const char* says;
  } const faults[] = {
      {"locks", TwoOfOneKindAndOneForgets<School<WithoutLocks>>, FailureKind::kDataRace, ""},
      {"the number of the learning", ForgottenWhileItIsMade<School<Sync, AnyPlanWillDo>>,
       FailureKind::kCheck, "no plan is from before all was forgotten"},
      {"forgetting what is made", ForgottenWhileItIsMade<School<Sync, IsStillMade>>,
       FailureKind::kCheck, "no plan is in the making for ever"},
      {"one at a time", SomethingFails<School<Sync, SeveralAreMade>>, FailureKind::kDataRace, ""},
  };
  for (const auto& fault : faults) {
    const Result result = explorer::Explore({.name = fault.without}, fault.body);
    EXPECT_EQ(result.failure, fault.failure) << result.report();
    EXPECT_NE(result.message.find(fault.says), std::string::npos) << result.report();
  }
}

}  // namespace
}  // namespace tidepool
