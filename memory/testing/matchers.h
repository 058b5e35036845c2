// GoogleTest matchers that say what a piece of code may do with memory. The guide is
// docs/testing_memory.md.
//
//   EXPECT_THAT([&] { trainer.Step(batch); }, AllocatesNothing());
//   EXPECT_THAT([&] { network.Output(x); }, PeakAtMost(2 << 20));
//   EXPECT_THAT([&] { LoadAndDrop(path); }, LeaksNothing());
//   EXPECT_THAT([&] { trainer.Step(batch); }, StaysInPlan(network.training_workspace()));
//
// The action is called once per assertion; what it throws passes through. Each matcher looks at the
// process-wide ledger before and after, so memory that other threads take meanwhile counts too. What
// is measured is tensor memory: arrays, pages, pools, packed weights, data sets; not std::vector. A
// failure says how much, of which kind and for which owner; MemoryTagScope gives those names.
#ifndef TIDEPOOL_MEMORY_TESTING_MATCHERS_H_
#define TIDEPOOL_MEMORY_TESTING_MATCHERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

// What a run of the action came to.
struct MemoryVerdict {
  bool fits = false;
  std::string explanation;  // also when it fits, for Not(...)
};

// Runs the action and judges.
using MemoryJudge = std::function<MemoryVerdict(const std::function<void()>& action)>;

// The matcher all of them are; made by the functions below.
class MemoryMatcher {
 public:
  MemoryMatcher(std::string expectation, MemoryJudge judge)
      : expectation_(std::move(expectation)),
        judge_(std::move(judge)),
        failed_(std::make_shared<std::optional<MemoryVerdict>>()) {}

  template <typename Action>
  bool MatchAndExplain(const Action& action, ::testing::MatchResultListener* listener) const {
    // GoogleTest asks once whether it matches, and on failure once more why; the action runs once.
    std::optional<MemoryVerdict> verdict;
    if (listener->IsInterested()) verdict.swap(*failed_);
    if (!verdict.has_value()) verdict = judge_([&] { action(); });
    if (!listener->IsInterested()) *failed_ = verdict;
    *listener << verdict->explanation;
    return verdict->fits;
  }
  void DescribeTo(std::ostream* out) const { *out << "an action that " << expectation_; }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not an action that " << expectation_;
  }

 private:
  std::string expectation_;
  MemoryJudge judge_;
  std::shared_ptr<std::optional<MemoryVerdict>> failed_;  // for the question that follows
};

// Asks nothing of the system: no heap array, no page, no chunk of a pool. What every steady step of
// a planned workspace does; run the action before, so that it has learned.
::testing::PolymorphicMatcher<MemoryMatcher> AllocatesNothing();

// Uses at most `bytes` of the device at once, above what was in use when it began: arrays on the
// heap and in workspaces, scratch, packed weights, records; pages that no array uses do not count.
::testing::PolymorphicMatcher<MemoryMatcher> PeakAtMost(int64_t bytes, Device device = Host());

// Leaves nothing behind: no more bytes in use of any kind on any device than before, and no array
// that outlived the cycle of its workspace. Memory kept for later use (pages, pools) is no leak, but
// caches that fill on first use are: run the action before.
::testing::PolymorphicMatcher<MemoryMatcher> LeaksNothing();

// Runs at least one cycle of `workspace`, and in each every request is served as planned: no miss, no
// spill, no new plan, no growth. `workspace` must outlive the assertion.
::testing::PolymorphicMatcher<MemoryMatcher> StaysInPlan(const Workspace& workspace);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_MATCHERS_H_
