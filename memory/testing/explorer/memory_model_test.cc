// Random programs: the explorer finds the outcomes that the axioms of C++20 allow, all and no
// other.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tidepool/memory/testing/explorer/axioms.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

using Outcomes = std::set<std::string>;

// How many programs; fewer where a switch of stacks costs a hundred times as much.
#if defined(__SANITIZE_THREAD__)
constexpr int kPrograms = 20;
#else
constexpr int kPrograms = 200;
#endif

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;
constexpr std::memory_order kAcqRel = std::memory_order_acq_rel;
constexpr std::memory_order kSeqCst = std::memory_order_seq_cst;

// What a program is mostly made of, so that what needs several operations of a kind comes up.
enum class Style { kMixed, kFences, kSequential, kReleases };

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Program Next() {
    style_ = static_cast<Style>(Below(4));
    const int threads = 2 + Below(3);
    Program program(threads);
    int stored = 0;
    for (std::vector<Event>& thread : program) {
      const int accesses = threads == 2 ? 2 + Below(2) : threads == 3 ? 1 + Below(2) : 1;
      for (int i = 0; i < accesses; ++i) {
        if (i > 0 && Below(style_ == Style::kFences ? 5 : 20) < 4) thread.push_back(Fence());
        thread.push_back(Access(++stored));
      }
    }
    // Four threads: two that store, two that load twice.
    if (threads == 4) {
      for (int i = 0; i < 4; ++i) {
        program[i][0].kind = i < 2 ? EventKind::kStore : EventKind::kLoad;
        program[i][0].variable = i % 2;
        program[i][0].order = Order(program[i][0].kind);
        if (i < 2) continue;
        if (style_ == Style::kFences) program[i].push_back(Fence());
        program[i].push_back({EventKind::kLoad, 1 - i % 2, Order(EventKind::kLoad), 0});
      }
    }
    return program;
  }

 private:
  int Below(int count) { return static_cast<int>(random_() % count); }

  Event Fence() {
    constexpr std::memory_order orders[] = {kAcquire, kRelease, kAcqRel, kSeqCst, kSeqCst, kSeqCst};
    return {EventKind::kFence, 0, orders[Below(6)], 0};
  }

  Event Access(int stored) {
    const int kind = Below(10);
    Event event = {EventKind::kExchange, Below(2), kRelaxed, stored};
    if (kind < 8) event.kind = kind < 4 ? EventKind::kLoad : EventKind::kStore;
    event.order = Order(event.kind);
    return event;
  }

  std::memory_order Order(EventKind kind) {
    if (style_ == Style::kFences) return kRelaxed;
    if (style_ == Style::kSequential && Below(5) != 0) return kSeqCst;
    const bool releases = style_ == Style::kReleases;
    switch (kind) {
      case EventKind::kLoad:
        return Below(3) != 0 || releases ? (Below(2) != 0 ? kAcquire : kRelaxed) : kSeqCst;
      case EventKind::kStore:
        return Below(3) != 0 || releases ? (Below(2) != 0 ? kRelease : kRelaxed) : kSeqCst;
      default:
        constexpr std::memory_order orders[] = {kRelaxed, kAcquire, kRelease, kAcqRel, kSeqCst};
        return orders[Below(5)];
    }
  }

  std::mt19937 random_;
  Style style_ = Style::kMixed;
};

struct State {
  Sync::Atomic<int> variables[2];
  std::vector<int> read[4];
};

// `yields` has a bit per operation that a yield is in front of.
void Run(const std::vector<Event>& thread, State& state, std::vector<int>& read,
         unsigned yields = 0) {
  for (const Event& event : thread) {
    if ((yields & 1) != 0) Sync::Yield();
    yields >>= 1;
    Sync::Atomic<int>& variable = state.variables[event.variable];
    switch (event.kind) {
      case EventKind::kLoad:
        read.push_back(variable.load(event.order));
        break;
      case EventKind::kStore:
        variable.store(event.stored, event.order);
        break;
      case EventKind::kExchange:
        read.push_back(variable.exchange(event.stored, event.order));
        break;
      case EventKind::kFence:
        Sync::Fence(event.order);
        break;
    }
  }
}

std::string OutcomeOf(State& state) {
  std::vector<int> read;
  for (const std::vector<int>& part : state.read) read.insert(read.end(), part.begin(), part.end());
  return Outcome(read, {state.variables[0].load(), state.variables[1].load()});
}

Outcomes OutcomesByExploring(const Program& program, const Options& options, unsigned yields = 0) {
  Outcomes outcomes;
  const Result result = Explore(options, [&](Execution& execution) {
    State& state = execution.Make<State>();
    for (size_t i = 0; i < program.size(); ++i) {
      execution.Thread([&program, &state, i, yields] {
        Run(program[i], state, state.read[i], yields >> (8 * i) & 0xff);
      });
    }
    execution.AtEnd([&] { outcomes.insert(OutcomeOf(state)); });
  });
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted && !result.yields_left_out) << result.report();
  return outcomes;
}

std::string Difference(const Outcomes& a, const Outcomes& b) {
  std::vector<std::string> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  std::string text;
  for (const std::string& outcome : only) text += "  " + outcome + "\n";
  return text;
}

// What the axioms do not know: locks, compare-exchanges that fail for no reason, waits and yields.
void RunStep(int step, State& state, Sync::Mutex& mutex, std::vector<int>& read) {
  Sync::Atomic<int>& x = state.variables[0];
  Sync::Atomic<int>& y = state.variables[1];
  int expected = 0;
  switch (step) {
    case 0:
      mutex.lock();
      x.store(x.load(kRelaxed) + 1, kRelaxed);
      mutex.unlock();
      break;
    case 1:
      if (mutex.try_lock()) {
        read.push_back(x.exchange(5, kRelaxed));
        mutex.unlock();
      }
      break;
    case 2:
      read.push_back(y.compare_exchange_weak(expected, 7, kAcqRel));
      break;
    case 3:
      Sync::Yield();
      break;
    case 4:
      y.store(1, kRelease);
      y.notify_all();
      break;
    case 5:
      for (int i = 0; i < 2 && y.load(kAcquire) == 0; ++i) Sync::Yield();
      read.push_back(x.load(kRelaxed));
      break;
    default:
      read.push_back(y.load(kSeqCst));
      break;
  }
}

TEST(MemoryModel, TheReductionLosesNothing) {
  std::mt19937 random(4);
  for (int i = 0; i < kPrograms / 3; ++i) {
    std::vector<int> steps[2];
    for (std::vector<int>& thread : steps) {
      for (int j = 1 + static_cast<int>(random() % 2); j > 0; --j) {
        thread.push_back(static_cast<int>(random() % 7));
      }
    }
    const bool waits = i % 2 == 0;
    if (waits) steps[0].push_back(4);  // who is waited for
    auto outcomes_by = [&](const Options& options) {
      Outcomes outcomes;
      const Result result = Explore(options, [&](Execution& execution) {
        State& state = execution.Make<State>();
        auto& mutex = execution.Make<Sync::Mutex>();
        for (int thread = 0; thread < 2; ++thread) {
          execution.Thread([&, thread] {
            for (int step : steps[thread]) RunStep(step, state, mutex, state.read[thread]);
          });
        }
        if (waits) {
          state.variables[1].store(3, kRelaxed);
          execution.Thread([&] { state.variables[1].wait(3, kAcquire); });
        }
        execution.AtEnd([&] { outcomes.insert(OutcomeOf(state)); });
      });
      EXPECT_TRUE(result.passed()) << result.report();
      EXPECT_TRUE(result.exhausted) << result.report();
      return outcomes;
    };
    const Outcomes reduced = outcomes_by({.search = Search::kFull});
    ASSERT_EQ(Difference(outcomes_by({.preemptions = waits ? 2 : 100}), reduced), "") << i;
  }
}

TEST(MemoryModel, IsThatOfTheAxioms) {
  Generator generator(20);
  int reordered = 0;
  for (int i = 0; i < kPrograms; ++i) {
    const Program program = generator.Next();
    const Outcomes explored = OutcomesByExploring(program, {.search = Search::kFull});
    const Outcomes allowed = OutcomesByAxioms(program, Axioms::kOrderAgreesWithHappensBefore);
    ASSERT_EQ(Difference(explored, allowed), "") << "not allowed, of\n" << ToText(program);
    ASSERT_EQ(Difference(allowed, explored), "") << "not found, of\n" << ToText(program);
    // The standard allows little more: where seq_cst and weaker accesses of a variable mix.
    const Outcomes standard = OutcomesByAxioms(program, Axioms::kStandard);
    ASSERT_EQ(Difference(allowed, standard), "") << ToText(program);
    const Options in_order = {.search = Search::kFull, .stores_in_order = true};
    reordered += OutcomesByExploring(program, in_order) != explored;
    if (i % 10 != 0) continue;
    const Outcomes all = OutcomesByExploring(program, {.preemptions = 100});
    ASSERT_EQ(Difference(all, explored), "") << "lost by the reduction, of\n" << ToText(program);
    ASSERT_EQ(Difference(explored, all), "") << ToText(program);
  }
  EXPECT_TRUE(reordered > 0 || kPrograms < 200) << "no program shows stores out of order";
}

// They come back at once or later: what a program can do does not depend on them.
TEST(MemoryModel, YieldsChangeNothing) {
  Generator generator(21);
  std::mt19937 random(5);
  for (int i = 0; i < kPrograms; ++i) {
    const Program program = generator.Next();
    unsigned yields = 0;
    for (size_t thread = 0; thread < program.size(); ++thread) {
      if (thread < 2) yields |= 1u << (8 * thread + random() % program[thread].size());
    }
    const Outcomes without = OutcomesByExploring(program, {.search = Search::kFull});
    for (const Options& options : {Options{.search = Search::kFull}, Options{.preemptions = 100}}) {
      if (program.size() > 2 && options.search == Search::kBounded) continue;
      const Outcomes with = OutcomesByExploring(program, options, yields);
      ASSERT_EQ(Difference(without, with), "") << "not found, of\n" << ToText(program);
      ASSERT_EQ(Difference(with, without), "") << "not allowed, of\n" << ToText(program);
    }
    // Within a bound a yield is a switch that is free.
    const Outcomes bounded = OutcomesByExploring(program, {.preemptions = 1});
    const Outcomes yielding = OutcomesByExploring(program, {.preemptions = 1}, yields);
    ASSERT_EQ(Difference(bounded, yielding), "") << "not found, of\n" << ToText(program);
  }
}

}  // namespace
}  // namespace tidepool::explorer
