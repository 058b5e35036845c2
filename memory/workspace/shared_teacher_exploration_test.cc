// Followers that teach one learner, under every interleaving: lessons are whole and as new as was said, plans are
// made one at a time, adopted or given up, and never after they were forgotten.
#include "tidepool/memory/workspace/shared_teacher.h"

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/workspace/plan_in_making.h"
#include "tidepool/memory/workspace/tiny_learner.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;
using explorer::Sync;

// As a workspace of a pool (pooled_core.cc).
template <typename Teacher>
class Follower {
 public:
  explicit Follower(Teacher& teacher) : teacher_(teacher) {}

  // Returns whether it missed; a loose one does.
  bool Serve(int kind, bool loose = false) {
    const uint64_t said = teacher_.version();
    if (said != followed_) {
      lesson_ = teacher_.lesson();
      Check(lesson_.version >= said, "a lesson is as new as was said");
      Check(lesson_.version > followed_, "a follower does not go back");
      followed_ = lesson_.version;
    }
    const bool misses = !Follows(kind) || loose;
    teacher_.Observe({kind, misses, loose}, followed_);
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

template <typename Policy = Sync, typename InMaking = PlanInMaking<Sync>,
          template <typename> class Learner = TinyLearner>
struct School {
  using Teacher = SharedTeacher<Policy, Learner<InMaking>>;

  explicit School(int failures = 0) : teacher(desk, failures) {}

  // One thread's cycles.
  void Serve(int first, int second = -1) {
    Follower<Teacher> follower(teacher);
    if (follower.Serve(first)) missed.fetch_add(1, std::memory_order_relaxed);
    if (second >= 0 && follower.Serve(second)) missed.fetch_add(1, std::memory_order_relaxed);
  }
  // Gives the plan of its kind up, unless it follows what is not learned any more.
  void ServeLoose(int kind) {
    Follower<Teacher> follower(teacher);
    for (const bool loose : {false, true}) {
      if (follower.Serve(kind, loose)) missed.fetch_add(1, std::memory_order_relaxed);
    }
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

// A plan is given up while others follow it, learn it or look whether there is something new.
template <typename School = School<>, int failures = 0>
void GivenUpWhileOthersFollow(Execution& execution) {
  auto& school = execution.Make<School>(failures);
  execution.Thread([&school] { school.Serve(0, 0); });
  execution.Thread([&school] { school.ServeLoose(0); });
  execution.AtEnd([&school] {
    school.teacher.Read([](const auto& learner) {
      Check(learner.given_up() <= 1, "one that is given up is given up once");
    });
    school.CheckEnd();
  });
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
      {"given up while others follow", GivenUpWhileOthersFollow<>, 3},
      {"given up, and something fails", GivenUpWhileOthersFollow<School<>, 1>, 2},
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
          case 0:
            return TwoOfTwoKinds(execution);
          case 1:
            return TwoOfOneKindAndOneForgets(execution);
          default:
            return ForgottenWhileItIsMade(execution);
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
// Judges what is learned now by cycles that followed what was learned before.
template <typename InMaking>
class AnyVersionTeaches : public TinyLearner<InMaking> {
 public:
  using TinyLearner<InMaking>::TinyLearner;
  std::optional<TinyWanted> Observe(TinyCycle cycle) {
    cycle.current = true;
    return TinyLearner<InMaking>::Observe(cycle);
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
      {"whether what was followed is learned still",
       GivenUpWhileOthersFollow<School<Sync, PlanInMaking<Sync>, AnyVersionTeaches>>,
       FailureKind::kCheck, "who followed what is learned now has missed what it has"},
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
