// What streams of cycles hold beside what is alive in them, in bytes of the ledger: random,
// alternating, growing and hostile ones, recorded ones of a parser and of networks, and the same as
// raw bytes. And that plans are given up where they would hold far more, no sooner, and come back.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/streams.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Pages, kept blocks and what lies outside; not what the books take.
int64_t Held() {
  int64_t bytes = 0;
  for (const MemoryKind kind : {MemoryKind::kUnreferenced, MemoryKind::kAllocated}) {
    bytes += MemoryTracker::Global().CurrentBytes(Host(), kind);
  }
  return bytes;
}

WorkspaceConfig Config() {
  WorkspaceConfig config;  // kTraining, as everybody gets it
  config.plan_search_seconds = 0;
  config.huge_pages = config.prefault = false;  // ends of large pages are not what is tested
  return config;
}

using Stream = std::function<std::vector<Step>(std::mt19937_64&, int cycle)>;

// Fixed sizes; what else there is of a stream follows from its seed: how many, how large, how many
// are alive, kinds in turns, and whether lives are drawn anew in each cycle.
Stream Drawn(uint64_t seed, bool drawn_lives) {
  return [=](std::mt19937_64& random, int cycle) {
    std::mt19937_64 shape(seed * 7919);
    const int count = 5 + static_cast<int>(shape() % 60);
    const int least = static_cast<int>(10 + shape() % 12);  // the power of two
    const int range = static_cast<int>(1 + shape() % 6);
    const size_t most_alive = 2 + shape() % 15;
    const uint64_t kinds = 1 + shape() % 4;
    std::mt19937_64 sizes(seed + static_cast<uint64_t>(cycle) % kinds);
    std::mt19937_64 lives(drawn_lives ? random() : seed * 77);
    std::vector<Step> steps;
    std::vector<uint32_t> alive;
    for (uint32_t i = 0; i < static_cast<uint32_t>(count); ++i) {
      const size_t base = size_t{1} << (least + static_cast<int>(sizes() % range));
      steps.push_back({i, base + sizes() % base});
      alive.push_back(i);
      while (alive.size() > most_alive || (!alive.empty() && lives() % 3 == 0)) {
        const auto at = alive.begin() + static_cast<std::ptrdiff_t>(lives() % alive.size());
        steps.push_back({*at, 0});
        alive.erase(at);
      }
    }
    for (const uint32_t i : alive) steps.push_back({i, 0});
    return steps;
  };
}

Stream Of(Draw draw) {
  return [draw](std::mt19937_64& random, int) { return draw(random); };
}

// One trained step of a network, as it was recorded.
Stream Recorded(const std::string& name) {
  const std::vector<LifetimeBuffer> buffers =
      ReadProblemFile("memory/planning/testdata/traces/" + name + ".csv").buffers;
  std::vector<Step> steps;
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (buffers[j].upper == buffers[i].lower) steps.push_back({static_cast<uint32_t>(j), 0});
    }
    steps.push_back({static_cast<uint32_t>(i), static_cast<size_t>(buffers[i].size)});
  }
  for (size_t j = 0; j < buffers.size(); ++j) {
    if (buffers[j].upper > buffers.back().lower) steps.push_back({static_cast<uint32_t>(j), 0});
  }
  return [steps](std::mt19937_64&, int) { return steps; };
}

struct Outcome {
  double most_alive = 0;  // bytes, in the cycles from `from` on
  double held = 0;        // at most between steps of these
  WorkspaceStats stats;
};

// No byte is written: gigabytes of addresses cost nothing.
Outcome Play(const Stream& stream, bool raw, int cycles, int from, uint64_t seed = 1) {
  const int64_t before = Held();
  Outcome found;
  Workspace workspace("stream", Config());
  std::vector<BufferHandle> buffers(1 << 16);
  std::vector<RawBlock> blocks(1 << 16);
  std::mt19937_64 random(seed);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const std::vector<Step> steps = stream(random, cycle);
    if (cycle >= from) {
      found.most_alive = std::max(found.most_alive, static_cast<double>(MostAlive(steps)));
    }
    WorkspaceScope scope(workspace);
    for (const Step& step : steps) {
      if (raw) {
        PlayRawHere({step}, blocks, /*writes=*/false);
      } else {
        PlayHere({step}, buffers, /*writes=*/false);
      }
      // In the middle of cycles: some of what they take goes back when they end.
      if (cycle < from || step.bytes == 0) continue;
      found.held = std::max(found.held, static_cast<double>(Held() - before));
    }
  }
  found.stats = workspace.stats();
  return found;
}

// Beside: gaps that are not worth a system call, and as much outside of the pages; chunks of raw
// bytes.
constexpr double kBeside = 6.0 * kMiB, kBesideRaw = 12.0 * kMiB;

void ExpectWithin(const Outcome& found, double factor, double beside, const std::string& what) {
  std::printf("%s: %.2f MiB alive, %.2f held, %.2f times\n", what.c_str(), found.most_alive / kMiB,
              found.held / kMiB, found.held / found.most_alive);
  EXPECT_LE(found.held, factor * found.most_alive + beside)
      << what << ": " << found.most_alive << " alive";
}

TEST(StreamFootprint, DrawnStreamsHoldLittleMoreThanIsAlive) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const bool drawn_lives : {false, true}) {
      const std::string what =
          "seed " + std::to_string(seed) + (drawn_lives ? ", drawn lives" : "");
      ExpectWithin(Play(Drawn(seed, drawn_lives), /*raw=*/false, 150, 100), 1.25, kBeside, what);
      ExpectWithin(Play(Drawn(seed, drawn_lives), /*raw=*/true, 150, 100), 1.25, kBesideRaw,
                   what + ", raw");
    }
  }
}

TEST(StreamFootprint, AlternatingGrowingAndHostileStreamsHoldLittleMoreThanIsAlive) {
  struct Case {
    const char* name;
    Draw draw;
  };
  for (const Case& stream :
       {Case{"drawn lives", &DrawnLives}, Case{"alternating", &Alternating}, Case{"saw", &Saw},
        Case{"drawn first", &DrawnFirst}, Case{"drifting", &Drifting},
        Case{"parser", &ParserDocument}, Case{"lengths", &Sequence}, Case{"batches", &Batch}}) {
    const int cycles = stream.draw == &ParserDocument ? 30 : 300;
    ExpectWithin(Play(Of(stream.draw), /*raw=*/false, cycles, cycles / 2), 1.25, kBeside,
                 stream.name);
    ExpectWithin(Play(Of(stream.draw), /*raw=*/true, cycles, cycles / 2), 1.25, kBesideRaw,
                 std::string(stream.name) + ", raw");
  }
}

TEST(StreamFootprint, RecordedNetworksHoldLittleMoreThanIsAlive) {
  for (const char* const name : {"mlp", "lenet", "residual_net", "lstm"}) {
    const Outcome planned = Play(Recorded(name), /*raw=*/false, 20, 10);
    ExpectWithin(planned, 1.02, kBeside, name);
    EXPECT_EQ(planned.stats.plans_given_up, 0u) << name;
    ExpectWithin(Play(Recorded(name), /*raw=*/true, 20, 10), 1.25, kBesideRaw,
                 std::string(name) + ", raw");
  }
}

// ---- plans that are given up
// ----------------------------------------------------------------------

TEST(StreamFootprint, APlanThatWouldHoldFarMoreIsGivenUpAndComesBack) {
  Workspace workspace("lives", Config());
  std::vector<BufferHandle> buffers(64);
  std::mt19937_64 random(5);
  size_t most_alive = 0;
  const auto cycle = [&](bool regular) {
    std::mt19937_64 fixed(9);
    const std::vector<Step> steps = DrawnLives(regular ? fixed : random);
    most_alive = std::max(most_alive, MostAlive(steps));
    WorkspaceScope scope(workspace);
    for (const Step& step : steps) {  // nothing lies where something else does
      BufferHandle& buffer = buffers[step.number];
      if (step.bytes > 0) buffer = BufferHandle(AllocateHere(step.bytes));
      for (const size_t at : {size_t{0}, buffer->bytes - 1}) {
        auto& mark = reinterpret_cast<unsigned char*>(buffer->data)[at];
        if (step.bytes > 0) mark = static_cast<unsigned char>(step.number);
        ASSERT_EQ(mark, step.number);
      }
      if (step.bytes == 0) buffer.Reset();
    }
  };
  for (int i = 0; i < 300; ++i) cycle(false);
  const WorkspaceStats irregular = workspace.stats();
  EXPECT_GE(irregular.plans_given_up, 1u);
  EXPECT_LE(irregular.plans_given_up, 6u) << "it does not take turns at being planned and given up";
  EXPECT_EQ(irregular.plans_kept, 0u);
  EXPECT_LE(irregular.size_bytes, most_alive + most_alive / 4 + kMiB);
  EXPECT_LE(irregular.plans, 30u);
  const std::string why = workspace.PlanReport();
  EXPECT_EQ(std::count(why.begin(), why.end(), '\n'), 1) << "once, however often: " << why;
  size_t since = 0, needed = 0, alive = 0, times = 0;
  ASSERT_EQ(std::sscanf(why.c_str(),
                        "no plan for cycles of 30 requests that begin with %*u bytes, since cycle "
                        "%zu: their lifetimes are other ones each time, all of which need %zu "
                        "bytes where at most %zu were alive; given up %zu time",
                        &since, &needed, &alive, &times),
            4)
      << why;
  EXPECT_LE(since, 300u);
  EXPECT_GT(needed, alive + alive / 4);
  EXPECT_LE(alive, most_alive);
  EXPECT_EQ(times, irregular.plans_given_up);
  for (int i = 0; i < 600; ++i) cycle(true);
  const WorkspaceStats regular = workspace.stats();
  EXPECT_EQ(regular.plans_kept, 1u);
  EXPECT_EQ(workspace.PlanReport(), "") << "there is a plan again";
  EXPECT_LE(regular.plans_given_up, irregular.plans_given_up + 1);
  for (int i = 0; i < 100; ++i) cycle(true);
  EXPECT_EQ(workspace.stats().misses, regular.misses) << "it is followed";
  EXPECT_EQ(workspace.stats().cycles_not_planned, regular.cycles_not_planned);
}

// The same of a pool, whose workspaces learn together; while one of them is in a cycle too.
TEST(StreamFootprint, APoolSaysWhyThereIsNoPlan) {
  WorkspacePool pool("lives");
  std::vector<BufferHandle> buffers(64);
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    PooledScope scope(pool);
    PlayHere(DrawnLives(random), buffers, /*writes=*/false);
    if (i < 299) continue;
    EXPECT_THAT(pool.PlanReport(), testing::HasSubstr("cycles of 30 requests"));
    EXPECT_THROW((void)scope.workspace().PlanReport(), Error) << "it is the pool's, and open";
  }
  EXPECT_GE(pool.stats().plans_given_up, 1u);
}

TEST(StreamFootprint, WherePlanningWaitsThatIsSaid) {
  Workspace workspace("parser", Config());
  std::vector<BufferHandle> buffers(1 << 16);
  std::mt19937_64 random(5);
  EXPECT_EQ(workspace.PlanReport(), "");
  for (int i = 0; i < 30; ++i) {
    WorkspaceScope scope(workspace);
    PlayHere(ParserDocument(random), buffers, /*writes=*/false);
  }
  EXPECT_THAT(workspace.PlanReport(), testing::HasSubstr("no plan for cycles at first sight"));
  WorkspaceScope scope(workspace);
  EXPECT_THROW((void)workspace.PlanReport(), Error) << "it is open";
}

// Lives that vary a little, of which the plan of all of them is little larger, are planned.
TEST(StreamFootprint, APlanThatHoldsALittleMoreStays) {
  Workspace workspace("lives", Config());
  std::vector<BufferHandle> buffers(8);
  std::mt19937_64 random(5);
  for (int i = 0; i < 400; ++i) {
    WorkspaceScope scope(workspace);
    buffers[0] = BufferHandle(AllocateHere(10 * kMiB));
    buffers[1] = BufferHandle(AllocateHere(kMiB));
    if (random() % 2 == 0) buffers[1].Reset();
    buffers[2] = BufferHandle(AllocateHere(kMiB));
    for (BufferHandle& buffer : buffers) buffer.Reset();
  }
  EXPECT_EQ(workspace.stats().plans_given_up, 0u);
  EXPECT_EQ(workspace.stats().plans_kept, 1u);
  EXPECT_LE(workspace.stats().misses, 4u);
}

// Kinds in turns with the same sizes and other lives: what a plan of all of them needs was never alive.
TEST(StreamFootprint, APlanOfKindsInTurnsIsHeldToWhatIsAlive) {
  Workspace workspace("kinds", Config());
  std::vector<BufferHandle> buffers(64);
  size_t most_alive = 0;
  for (int cycle = 0; cycle < 700; ++cycle) {
    std::mt19937_64 sizes(24), lives(25 + cycle % 8);
    std::vector<Step> steps;
    std::vector<uint32_t> alive;
    for (uint32_t i = 0; i < 30; ++i) {
      steps.push_back({i, (640 + sizes() % 64 * 640) << 10});
      alive.push_back(i);
      while (alive.size() > 3 || (!alive.empty() && lives() % 3 == 0)) {
        const auto at = alive.begin() + static_cast<std::ptrdiff_t>(lives() % alive.size());
        steps.push_back({*at, 0});
        alive.erase(at);
      }
    }
    for (const uint32_t i : alive) steps.push_back({i, 0});
    most_alive = std::max(most_alive, MostAlive(steps));
    {
      WorkspaceScope scope(workspace);
      PlayHere(steps, buffers, /*writes=*/false);
    }
    EXPECT_LE(workspace.stats().live_lower_bound_bytes, most_alive) << "cycle " << cycle;
    // After all kinds came and longer lives came for the third time.
    if (cycle < 100) continue;
    ASSERT_LE(workspace.size(), most_alive + most_alive / 4 + 6 * kMiB) << "cycle " << cycle;
  }
  EXPECT_GE(workspace.stats().plans_given_up, 1u);
  EXPECT_LE(workspace.stats().plans_given_up, 6u);
}

// Nor do pages stay as large as the plan was when it is given up.
TEST(StreamFootprint, PagesComeDownWithAPlanThatIsGivenUp) {
  uint64_t given_up = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Workspace workspace("turns", Config());
    std::vector<BufferHandle> buffers(64);
    size_t most_alive = 0;
    for (int cycle = 0; cycle < 400; ++cycle) {
      std::mt19937_64 sizes(seed), lives(seed + 1 + static_cast<uint64_t>(cycle) % (2 + seed % 9));
      std::vector<Step> steps;
      std::vector<uint32_t> alive;
      for (uint32_t i = 0; i < 30; ++i) {
        const double power = 16 + 6 * static_cast<double>(sizes() % 100000) / 100000;
        steps.push_back({i, 10 * static_cast<size_t>(std::exp2(power))});
        alive.push_back(i);
        while (alive.size() > 2 + seed % 12 || (!alive.empty() && lives() % 3 == 0)) {
          const auto at = alive.begin() + static_cast<std::ptrdiff_t>(lives() % alive.size());
          steps.push_back({*at, 0});
          alive.erase(at);
        }
      }
      for (const uint32_t i : alive) steps.push_back({i, 0});
      most_alive = std::max(most_alive, MostAlive(steps));
      {
        WorkspaceScope scope(workspace);
        PlayHere(steps, buffers, /*writes=*/false);
      }
      // After all kinds came and longer lives came for the third time.
      if (cycle < 60) continue;
      ASSERT_LE(workspace.size(), most_alive + most_alive / 4 + 6 * kMiB)
          << "seed " << seed << ", cycle " << cycle;
    }
    given_up += workspace.stats().plans_given_up;
  }
  EXPECT_GE(given_up, 3u);
}

// Of little memory: nothing is gained by giving it up.
TEST(StreamFootprint, SmallPlansStay) {
  Workspace workspace("small", Config());
  std::vector<BufferHandle> buffers(64);
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<Step> steps = DrawnLives(random);
    for (Step& step : steps) step.bytes = (step.bytes + 511) / 512;
    WorkspaceScope scope(workspace);
    PlayHere(steps, buffers, /*writes=*/false);
  }
  EXPECT_EQ(workspace.stats().plans_given_up, 0u);
  EXPECT_EQ(workspace.stats().plans_kept, 1u);
}

}  // namespace
}  // namespace tidepool
