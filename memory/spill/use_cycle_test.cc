// What is learned of cycles, beside what a program that is known does next.
#include "tidepool/memory/spill/use_cycle.h"

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::internal {
namespace {

using Things = std::deque<UsedThing>;

Things Make(UseCycle& cycle, int count) {
  Things things;
  for (int i = 0; i < count; ++i) cycle.Add(things.emplace_back(100));
  return things;
}

// One cycle. Returns how many of its uses followed the plan.
int Uses(UseCycle& cycle, Things& things, const std::vector<int>& order) {
  int followed = 0;
  for (const int i : order) followed += cycle.Use(things[static_cast<size_t>(i)]).followed;
  return followed;
}

TEST(UseCycle, IsFollowedFromTheSecondEqualOneOn) {
  UseCycle cycle;
  Things things = Make(cycle, 3);
  const std::vector<int> order = {0, 1, 0, 2};
  EXPECT_EQ(Uses(cycle, things, order), 0) << "nobody has told of cycles";
  EXPECT_FALSE(cycle.EndCycle().followed);
  Uses(cycle, things, order);
  cycle.EndCycle();
  EXPECT_FALSE(cycle.follows());
  Uses(cycle, things, order);
  EXPECT_FALSE(cycle.EndCycle().followed);
  EXPECT_TRUE(cycle.follows());
  EXPECT_EQ(cycle.NextUse(things[0]), 0);
  EXPECT_EQ(cycle.NextUse(things[2]), 3);
  EXPECT_EQ(Uses(cycle, things, {0, 1}), 2);
  EXPECT_EQ(cycle.NextUse(things[0]), 0);
  EXPECT_EQ(cycle.NextUse(things[1]), 3);
  EXPECT_EQ(cycle.Expected(1), &things[2]);
  EXPECT_EQ(cycle.Expected(3), &things[1]);
  EXPECT_EQ(Uses(cycle, things, {0, 2}), 2);
  EXPECT_TRUE(cycle.EndCycle().followed);
  EXPECT_TRUE(cycle.follows());
}

TEST(UseCycle, ADifferentUseEndsItForTheCycleAndTwoOtherCyclesReplaceIt) {
  UseCycle cycle;
  Things things = Make(cycle, 4);
  cycle.EndCycle();
  const std::vector<int> order = {0, 1, 2}, other = {0, 2, 1, 3};
  for (int i = 0; i < 2; ++i) {
    Uses(cycle, things, order);
    cycle.EndCycle();
  }
  EXPECT_TRUE(cycle.Use(things[0]).followed);
  EXPECT_TRUE(cycle.Use(things[2]).left);
  EXPECT_FALSE(cycle.follows());
  EXPECT_EQ(Uses(cycle, things, {1, 3}), 0);
  EXPECT_FALSE(cycle.EndCycle().left) << "it was told before";
  EXPECT_FALSE(cycle.follows()) << "it is to come again first";
  EXPECT_EQ(Uses(cycle, things, order), 0);
  EXPECT_FALSE(cycle.EndCycle().followed);
  EXPECT_TRUE(cycle.follows());
  for (int i = 0; i < 2; ++i) {
    Uses(cycle, things, other);
    cycle.EndCycle();
  }
  EXPECT_EQ(Uses(cycle, things, other), 4);
  EXPECT_TRUE(cycle.EndCycle().followed);
  // Too short, and too long.
  EXPECT_EQ(Uses(cycle, things, {0, 2, 1}), 3);
  EXPECT_TRUE(cycle.EndCycle().left);
  Uses(cycle, things, other);
  cycle.EndCycle();
  EXPECT_EQ(Uses(cycle, things, other), 4);
  EXPECT_TRUE(cycle.Use(things[0]).left);
  EXPECT_FALSE(cycle.EndCycle().followed);
  // What is known and is not expected at all.
  Uses(cycle, things, order);
  cycle.EndCycle();
  Uses(cycle, things, order);
  cycle.EndCycle();
  EXPECT_TRUE(cycle.follows());
  EXPECT_TRUE(cycle.Use(things[3]).left);
}

TEST(UseCycle, OtherThingsInTheSameOrderAreAnotherCycle) {
  UseCycle cycle;
  Things things = Make(cycle, 4);
  cycle.EndCycle();
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 0}, {2, 3, 2}, {0, 3, 0}}) {
    Uses(cycle, things, order);
    cycle.EndCycle();
    EXPECT_FALSE(cycle.follows());
  }
}

TEST(UseCycle, WhatIsNewOrGoneIsNoDifference) {
  UseCycle cycle;
  Things things = Make(cycle, 4);
  cycle.EndCycle();
  for (int i = 0; i < 2; ++i) {
    Uses(cycle, things, {0, 1, 2, 3, 1});
    cycle.EndCycle();
  }
  Things more;
  EXPECT_EQ(Uses(cycle, things, {0}), 1);
  EXPECT_FALSE(cycle.Add(more.emplace_back(50)).left);
  EXPECT_EQ(cycle.NextUse(more[0]), UseCycle::kNever);
  cycle.Remove(things[1]);
  EXPECT_EQ(Uses(cycle, things, {2}), 1);
  EXPECT_FALSE(cycle.Use(more[0]).left);
  EXPECT_EQ(Uses(cycle, things, {3}), 1);
  EXPECT_TRUE(cycle.EndCycle().followed);
  EXPECT_TRUE(cycle.follows());
  cycle.Remove(more[0]);
  // So it goes on, and is learned.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Uses(cycle, things, {0, 2, 3}), 3);
    EXPECT_TRUE(cycle.EndCycle().followed);
  }
  EXPECT_EQ(Uses(cycle, things, {0}), 1);
  EXPECT_EQ(cycle.NextUse(things[3]), 1) << "the use of what is gone is not expected any more";
}

// As by another thread, which has no order with this one.
TEST(UseCycle, WhatPassesAnywhereInACycleIsNoDifference) {
  std::mt19937_64 random(3);
  UseCycle cycle;
  Things things = Make(cycle, 5);
  cycle.EndCycle();
  for (int round = 0; round < 20; ++round) {
    int followed = 0;
    const bool differs = round == 10;
    for (const int i : {0, 1, 2, 1, 3, 4, differs ? 3 : 0}) {
      Things passing;
      for (uint64_t many = random() % 3; many > 0; --many) {
        cycle.Add(passing.emplace_back(50));
        cycle.Use(passing.back());
      }
      followed += Uses(cycle, things, {i});
      for (UsedThing& thing : passing) cycle.Remove(thing);
    }
    EXPECT_EQ(followed, round < 2 || round == 11 ? 0 : differs ? 6 : 7) << round;
    cycle.EndCycle();
  }
}

TEST(UseCycle, MoreUsesThanAreRecordedAreNotLearned) {
  UseCycle cycle;
  Things things = Make(cycle, 2);
  cycle.EndCycle();
  for (int i = 0; i < 3; ++i) {
    for (size_t use = 0; use < 2 * UseCycle::kMostUses; ++use) {
      const bool told = cycle.Use(things[use % 2]).unrecorded;
      EXPECT_EQ(told, use == UseCycle::kMostUses) << "once, when it is known";
      if (HasFailure()) return;
    }
    cycle.EndCycle();
    EXPECT_FALSE(cycle.follows());
  }
  for (int i = 0; i < 2; ++i) {
    for (size_t use = 0; use < UseCycle::kMostUses; ++use) {
      EXPECT_FALSE(cycle.Use(things[use % 2]).unrecorded);
    }
    cycle.EndCycle();
  }
  EXPECT_TRUE(cycle.follows());
}

// A program that makes, uses and drops what some variables hold, again and again: what comes next is known.
struct Step {
  enum Kind { kUse, kMake, kDrop } kind;
  size_t variable;
};

class Program {
 public:
  Program(uint64_t seed, int variables, int steps) : random_(seed) {
    for (int i = 0; i < variables; ++i) {
      Set(static_cast<size_t>(i), 100 + static_cast<int64_t>(Draw(3)));
    }
    for (int i = 0; i < steps; ++i) {
      const uint64_t kind = Draw(8);
      steps_.push_back({kind < 6   ? Step::kUse
                        : kind < 7 ? Step::kMake
                                   : Step::kDrop,
                        Draw(static_cast<uint64_t>(variables))});
    }
  }
  ~Program() {
    for (auto& held : held_) {
      if (held != nullptr) cycle_.Remove(*held);
    }
  }

  // `checks`: beside each step.
  void RunOnce(bool checks) {
    for (size_t at = 0; at < steps_.size(); ++at) {
      if (checks) Check(at);
      const Step& step = steps_[at];
      if (step.kind == Step::kMake) {
        Set(step.variable, 100);
      } else if (held_[step.variable] != nullptr) {
        if (step.kind == Step::kUse) cycle_.Use(*held_[step.variable]);
        if (step.kind == Step::kDrop) Drop(step.variable);
      }
    }
    cycle_.EndCycle();
  }
  bool follows() const { return cycle_.follows(); }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  void Drop(size_t variable) {
    if (held_[variable] == nullptr) return;
    cycle_.Remove(*held_[variable]);
    held_[variable].reset();
  }
  void Set(size_t variable, int64_t bytes) {
    if (held_.size() <= variable) held_.resize(variable + 1);
    auto made = std::make_unique<UsedThing>(bytes);
    cycle_.Add(*made);  // what was there goes then, as in an assignment
    Drop(variable);
    held_[variable] = std::move(made);
  }

  void Check(size_t at) {
    // What is done from here to the end of the next cycle, on variables that remember whether they hold what they hold now.
    std::vector<int64_t> next(held_.size(), UseCycle::kNever);
    std::vector<const UsedThing*> now, holds;
    for (const auto& held : held_) holds.push_back(held.get());
    now = holds;
    static const UsedThing made(0);
    int64_t uses = 0;
    for (size_t i = at; i < 2 * steps_.size(); ++i) {
      const Step& step = steps_[i % steps_.size()];
      const UsedThing*& held = holds[step.variable];
      if (step.kind == Step::kDrop) held = nullptr;
      if (step.kind == Step::kMake) held = &made;
      if (step.kind == Step::kDrop || held == nullptr) continue;
      const UsedThing* const expected = cycle_.Expected(uses);
      EXPECT_EQ(expected, held == &made ? nullptr : held) << "step " << at << ", in " << uses;
      int64_t& first = next[step.variable];
      if (held != &made && first == UseCycle::kNever) first = uses;
      ++uses;
    }
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] == nullptr) continue;
      EXPECT_EQ(cycle_.NextUse(*now[i]), next[i]) << "step " << at << ", variable " << i;
    }
  }

  std::mt19937_64 random_;
  UseCycle cycle_;
  std::vector<std::unique_ptr<UsedThing>> held_;
  std::vector<Step> steps_;
};

TEST(UseCycle, SaysWhatAProgramDoesNext) {
  int followed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Program program(seed, 1 + static_cast<int>(seed % 9), 1 + static_cast<int>(seed * 7 % 40));
    for (int i = 0; i < 5; ++i) program.RunOnce(false);
    if (!program.follows()) continue;  // nothing is left to use, in the first place
    ++followed;
    for (int i = 0; i < 3; ++i) program.RunOnce(true);
    EXPECT_TRUE(program.follows());
    if (HasFailure()) return;
  }
  EXPECT_GT(followed, 240);
}

}  // namespace
}  // namespace tidepool::internal
