#include "tidepool/memory/planning/background_planner.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/planning/search_planner.h"

// While set, the planner's thread gets no memory.
static std::atomic<bool> starve_planner_thread{false};

static bool IsPlannerThread() {
  static thread_local const bool is_planner = [] {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return std::strcmp(name, "tidepool-plan") == 0;
  }();
  return is_planner;
}

// Blocks that were freed on the other side than they were taken on.
static std::atomic<int64_t> freed_by_planner{0}, freed_for_planner{0};

// In front of each block, which stays aligned.
struct alignas(16) BlockSide {
  bool of_planner;
};

// Not inlined: then the compiler would see a new that ends in a free.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (starve_planner_thread && IsPlannerThread()) throw std::bad_alloc();
  void* const memory = std::malloc(bytes + sizeof(BlockSide));
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) BlockSide{IsPlannerThread()} + 1;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  BlockSide* const side = static_cast<BlockSide*>(memory) - 1;
  if (side->of_planner != IsPlannerThread())
    ++(side->of_planner ? freed_for_planner : freed_by_planner);
  std::free(side);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace tidepool {
namespace {

using State = PlanTicket::State;

std::vector<LifetimeBuffer> Instance(const std::string& name) {
  return ReadProblemFile("memory/planning/testdata/" + name + ".csv").buffers;
}

// A search that does not end by itself.
std::shared_ptr<PlanTicket> SubmitEndless(BackgroundPlanner& planner) {
  const std::shared_ptr<PlanTicket> ticket =
      planner.Submit(Instance("D.1048576"), 1, {.budget = absl::InfiniteDuration()});
  while (ticket->state() == State::kQueued) std::this_thread::yield();
  EXPECT_EQ(ticket->state(), State::kPlanning);
  return ticket;
}

// Placed at once: nothing is gained by a search.
std::vector<LifetimeBuffer> EasyProblem(int count) {
  return std::vector<LifetimeBuffer>(count, {0, 1, 1});
}

TEST(BackgroundPlanner, ImprovesOnGreedyAndIsTakenOnce) {
  BackgroundPlanner planner;
  const std::vector<LifetimeBuffer> buffers = Instance("A.1048576");
  const int64_t greedy = PlanGreedy(buffers, 1).peak;
  const auto ticket = planner.Submit(buffers, 1, {.node_budget = 20000, .peak_to_beat = greedy});
  ticket->Wait();
  ASSERT_EQ(ticket->state(), State::kImproved);
  EXPECT_TRUE(ticket->ready());
  const std::optional<Placement> placement = ticket->Take();
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(FindPlacementViolation(buffers, 1, *placement), std::nullopt);
  EXPECT_LT(placement->peak, greedy);
  EXPECT_EQ(ticket->Take(), std::nullopt);
  ticket->Cancel();
  EXPECT_EQ(ticket->state(), State::kImproved);
  SearchOptions same;
  same.alignment = 1;
  same.time_limit = absl::InfiniteDuration();
  same.node_budget = 20000;
  EXPECT_EQ(placement->offsets, SearchPlanner(buffers, same).Run().offsets);
}

TEST(BackgroundPlanner, GivesNothingThatIsNotBetter) {
  BackgroundPlanner planner;
  const auto ticket = planner.Submit({{0, 2, 64}, {1, 3, 64}}, 64, {.peak_to_beat = 128});
  ticket->Wait();
  EXPECT_EQ(ticket->state(), State::kNotImproved);
  EXPECT_EQ(ticket->Take(), std::nullopt);
  const auto any = planner.Submit({{0, 2, 64}, {1, 3, 64}}, 64, {});
  any->Wait();
  EXPECT_EQ(any->Take()->peak, 128);
  const auto empty = planner.Submit({}, 64, {});
  empty->Wait();
  EXPECT_EQ(empty->Take()->peak, 0);
}

TEST(BackgroundPlanner, EndsAtItsBudgetAndAtTheCapacity) {
  BackgroundPlanner planner;
  const auto brief = planner.Submit(Instance("D.1048576"), 1, {.budget = absl::Milliseconds(20)});
  brief->Wait();
  EXPECT_EQ(brief->state(), State::kImproved);
  const auto roomy = planner.Submit(Instance("D.1048576"), 1,
                                    {.budget = absl::InfiniteDuration(), .capacity = 1048576});
  roomy->Wait();
  EXPECT_LE(roomy->Take()->peak, 1048576);
}

TEST(BackgroundPlanner, RefusesBadProblemsAtOnce) {
  BackgroundPlanner planner;
  EXPECT_THROW(planner.Submit({{3, 3, 1}}, 1, {}), Error);
  EXPECT_THROW(planner.Submit({}, 0, {}), Error);
  EXPECT_THROW(planner.Submit({}, 1, {.budget = absl::Seconds(-1)}), Error);
  EXPECT_THROW(planner.Submit({}, 1, {.node_budget = -1}), Error);
  EXPECT_THROW(planner.Submit({}, 1, {.capacity = -1}), Error);
  EXPECT_THROW(planner.Submit({}, 1, {.peak_to_beat = -1}), Error);
}

TEST(BackgroundPlanner, CancelsWhatRunsAndWhatWaits) {
  BackgroundPlanner planner;
  const auto running = SubmitEndless(planner);
  const auto waiting = planner.Submit(EasyProblem(3), 1, {});
  EXPECT_FALSE(waiting->ready());
  waiting->Cancel();
  EXPECT_EQ(waiting->state(), State::kCancelled);
  running->Cancel();
  running->Wait();
  EXPECT_EQ(running->state(), State::kCancelled);
  EXPECT_EQ(running->Take(), std::nullopt);
}

TEST(BackgroundPlanner, LettingGoOfATicketCancels) {
  BackgroundPlanner planner;
  auto running = SubmitEndless(planner);
  planner.Submit(Instance("A.1048576"), 1, {.budget = absl::InfiniteDuration()});
  const auto next = planner.Submit(EasyProblem(300), 1, {});
  auto copy = running;
  running.reset();
  EXPECT_EQ(copy->state(), State::kPlanning);
  copy.reset();
  next->Wait();  // For ever, if the endless ones went on.
  EXPECT_EQ(next->state(), State::kImproved);
}

TEST(BackgroundPlanner, ServesSmallProblemsFirstButStarvesNone) {
  BackgroundPlanner planner;
  const auto first = SubmitEndless(planner);
  const auto big = planner.Submit(EasyProblem(50), 1, {});
  std::vector<std::shared_ptr<PlanTicket>> small;
  for (int i = 0; i < 10; ++i) small.push_back(planner.Submit(EasyProblem(5), 1, {}));
  first->Cancel();
  // Turn 1 was the endless one, 2 and 3 are small ones', 4 is the oldest's.
  big->Wait();
  EXPECT_TRUE(small[0]->ready());
  EXPECT_TRUE(small[1]->ready());
  small[2]->Wait();
  EXPECT_TRUE(big->ready());
}

TEST(BackgroundPlanner, BoundsWhatItHolds) {
  BackgroundPlanner planner;
  const auto huge = planner.Submit(EasyProblem(BackgroundPlanner::kMostBuffers + 1), 1, {});
  EXPECT_EQ(huge->state(), State::kRefused);
  EXPECT_EQ(huge->Take(), std::nullopt);
  const auto running = SubmitEndless(planner);
  const auto large = planner.Submit(EasyProblem(BackgroundPlanner::kMostBuffers - 1000), 1, {});
  EXPECT_EQ(large->state(), State::kQueued);
  EXPECT_EQ(planner.Submit(EasyProblem(1000), 1, {})->state(), State::kRefused);
  large->Cancel();  // Its buffers are free at once.
  std::vector<std::shared_ptr<PlanTicket>> many;
  for (int64_t i = 2; i < BackgroundPlanner::kMostTickets; ++i) {
    many.push_back(planner.Submit(EasyProblem(1), 1, {}));
    ASSERT_EQ(many.back()->state(), State::kQueued) << i;
  }
  EXPECT_EQ(planner.Submit({}, 1, {})->state(), State::kRefused);
  running->Cancel();
  for (const auto& ticket : many) ticket->Wait();
  const auto after = planner.Submit(EasyProblem(1000), 1, {});
  after->Wait();
  EXPECT_EQ(after->state(), State::kImproved);
}

TEST(BackgroundPlanner, StopsAndStartsAgain) {
  BackgroundPlanner planner;
  planner.Stop();
  for (int round = 0; round < 3; ++round) {
    const auto running = SubmitEndless(planner);
    const auto waiting = planner.Submit(EasyProblem(2), 1, {});
    planner.Stop();
    EXPECT_EQ(running->state(), State::kCancelled);
    EXPECT_EQ(waiting->state(), State::kCancelled);
  }
}

TEST(BackgroundPlanner, TicketsOutliveThePlanner) {
  std::shared_ptr<PlanTicket> done;
  std::shared_ptr<PlanTicket> running;
  {
    BackgroundPlanner planner;
    done = planner.Submit(EasyProblem(4), 1, {});
    done->Wait();
    running = SubmitEndless(planner);
  }
  EXPECT_EQ(done->Take()->peak, 4);
  EXPECT_EQ(running->state(), State::kCancelled);
}

TEST(BackgroundPlanner, FailuresStayInside) {
  BackgroundPlanner planner;
  const auto running = SubmitEndless(planner);
  const auto starved = planner.Submit(EasyProblem(4), 1, {});
  running->Cancel();
  running->Wait();
  starve_planner_thread = true;
  // The thread may have been faster.
  const auto second = planner.Submit(EasyProblem(4), 1, {});
  second->Wait();
  starve_planner_thread = false;
  EXPECT_TRUE(starved->ready());
  EXPECT_EQ(second->state(), State::kFailed);
  EXPECT_EQ(second->Take(), std::nullopt);
  const auto next = planner.Submit(EasyProblem(4), 1, {});
  next->Wait();
  EXPECT_EQ(next->state(), State::kImproved);
}

TEST(BackgroundPlanner, ManyThreads) {
  BackgroundPlanner planner;
  constexpr uint64_t kSeed = 77;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&planner, &taken, t] {
      std::mt19937_64 random(kSeed + t);
      for (int round = 0; round < 200; ++round) {
        const std::vector<LifetimeBuffer> buffers =
            RandomProblem(random, static_cast<int>(random() % 30), 20, 8, 100);
        const auto ticket = planner.Submit(buffers, 4, {.node_budget = 200});
        switch (random() % 4) {
          case 0:
            break;  // let go
          case 1:
            ticket->Cancel();
            ticket->Wait();
            break;
          default:
            ticket->Wait();
            const std::optional<Placement> placement = ticket->Take();
            ASSERT_TRUE(placement.has_value());
            ASSERT_EQ(FindPlacementViolation(buffers, 4, *placement), std::nullopt);
            ++taken;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 300);
}

// A thread that may be preempted for long at any place must not hold the lock of an arena that others
// need: it frees what it has taken itself, and nobody else frees that.
TEST(BackgroundPlanner, ItsThreadFreesNothingOfOthersNorOthersOfIts) {
  BackgroundPlanner planner;
  const auto submit = [&](const std::string& name, int64_t node_budget) {
    return planner.Submit(Instance(name), 64, {.node_budget = node_budget});
  };
  submit("D.1048576", 100)->Wait();  // what is made once
  freed_by_planner = freed_for_planner = 0;
  for (int round = 0; round < 3; ++round) {
    const auto taken = submit("D.1048576", 1000);
    const auto kept = submit("F.1048576", 1000);
    const auto cancelled = submit("F.1048576", 0);
    submit("F.1048576", 1000);  // let go
    cancelled->Cancel();
    taken->Wait();
    kept->Wait();
    EXPECT_TRUE(taken->Take().has_value());
    while (!cancelled->ready()) std::this_thread::yield();
  }
  submit("D.1048576", 1000);
  planner.Stop();
  EXPECT_EQ(freed_by_planner, 0);
  EXPECT_EQ(freed_for_planner, 0);
}

TEST(BackgroundPlanner, ItsThreadYieldsToAllOthers) {
  BackgroundPlanner planner;
  const auto running = SubmitEndless(planner);
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    if (stat.find("(tidepool-plan)") == std::string::npos) continue;
    // proc(5): after the name come the fields from the third on; 19 is nice, 41 the policy.
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::vector<std::string> values;
    for (std::string value; fields >> value;) values.push_back(value);
    ASSERT_GT(values.size(), 38u);
    EXPECT_TRUE(values[41 - 3] == "5" || values[19 - 3] == "19") << stat;
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST(BackgroundPlannerDeathTest, ExitWithWorkUnderWay) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        static std::shared_ptr<PlanTicket> held;  // destroyed after the planner has stopped
        held = SubmitEndless(BackgroundPlanner::Shared());
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

#ifndef __SANITIZE_THREAD__  // It does not allow threads after a fork.
TEST(BackgroundPlanner, AChildOfForkGetsItsOwn) {
  BackgroundPlanner& planner = BackgroundPlanner::Shared();
  EXPECT_EQ(&planner, &BackgroundPlanner::Shared());
  auto running = SubmitEndless(planner);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    running.reset();
    const auto ticket = BackgroundPlanner::Shared().Submit(EasyProblem(7), 1, {});
    ticket->Wait();
    const std::optional<Placement> placement = ticket->Take();
    std::quick_exit(placement.has_value() && placement->peak == 7 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(running->state(), State::kPlanning);
  planner.Stop();
}
#endif

}  // namespace
}  // namespace tidepool
