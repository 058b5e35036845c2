// Whatever came before, a cycle that repeats is learned, and a workspace does not keep what it no
// longer needs.
//
// Random histories (cycles alike and unlike, of the same beginning, with other lifetimes, failed ones;
// Trim, Destroy, the Reclaimer), then one cycle again and again. Nothing touches the bytes, so sizes go
// up to hundreds of MiB.
//
// TIDEPOOL_MODEL_ROUNDS sets their number, TIDEPOOL_MODEL_SEED repeats a run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// A step makes an array of so many bytes, or, when 0, releases the one that `release` names among
// those alive.
struct Step {
  size_t bytes;
  size_t release;
};
using Script = std::vector<Step>;

constexpr size_t kMiB = size_t{1} << 20;
// Two chunks of the pool, and pages beyond what requests need.
constexpr int64_t kSlackBytes = 8 << 20;

int64_t HeldBytes() {
  const auto of = [](MemoryKind kind) {
    return MemoryTracker::Global().CurrentBytes(Device{DeviceType::Named("simulated"), 0}, kind);
  };
  return of(MemoryKind::kUnreferenced) + of(MemoryKind::kAllocated);
}

// What a workspace that has seen nothing else plans for it: the live bound, or what the planner makes of
// it at once, which plan_search_seconds is there to improve on.
int64_t PeakOfItsOwn(const Script& script) {
  std::vector<LifetimeBuffer> requests;
  std::vector<size_t> alive;
  for (const Step& step : script) {
    const auto now = static_cast<int64_t>(requests.size());
    if (step.bytes > 0) {
      alive.push_back(requests.size());
      requests.push_back({now, INT64_MAX, static_cast<int64_t>((step.bytes + 63) / 64 * 64)});
    } else {
      requests[alive[step.release]].upper = now;
      alive.erase(alive.begin() + step.release);
    }
  }
  for (size_t i : alive) requests[i].upper = static_cast<int64_t>(requests.size());
  return PlanGreedy(requests, 64).peak;
}

class Histories {
 public:
  explicit Histories(uint64_t seed) : random_(seed) {}

  size_t Below(size_t n) { return random_() % n; }
  bool Chance(int percent) { return Below(100) < static_cast<size_t>(percent); }

  size_t RandomSize(int magnitude) {
    if (magnitude == 0) return 64 + Below(4096);
    return magnitude == 1 ? 4096 + Below(2 * kMiB) : kMiB + Below(300 * kMiB);
  }

  // Continues a script of which `alive` arrays are alive.
  void Extend(Script& script, size_t alive, size_t steps, int magnitude) {
    for (size_t i = 0; i < steps; ++i) {
      if (alive > 0 && Chance(45)) {
        script.push_back({0, Below(alive--)});
      } else {
        script.push_back({RandomSize(Chance(20) ? 0 : magnitude), 0});
        ++alive;
      }
    }
  }

  static size_t AliveAfter(const Script& script) {
    size_t alive = 0;
    for (const Step& step : script) step.bytes > 0 ? ++alive : --alive;
    return alive;
  }

  // A cycle like another: its beginning, or with a release that comes later or never, or with other
  // sizes from somewhere on.
  Script Like(const Script& other, int magnitude) {
    Script script = other;
    switch (Below(4)) {
      case 0:
        script.resize(1 + Below(script.size()));
        break;
      case 1: {
        script.resize(1 + Below(script.size()));
        Extend(script, AliveAfter(script), 1 + Below(20), magnitude);
        break;
      }
      case 2: {  // without some releases, those that follow name others
        std::erase_if(script, [&](const Step& step) { return step.bytes == 0 && Chance(20); });
        break;
      }
      default:
        for (Step& step : script) {
          if (step.bytes > 0 && Chance(10)) step.bytes = RandomSize(magnitude);
        }
    }
    if (script.empty() || script.front().bytes == 0) script.insert(script.begin(), {64, 0});
    return script;
  }

 private:
  std::mt19937_64 random_;
};

void Cycle(Workspace& workspace, const Script& script, size_t fail_at = SIZE_MAX) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> alive;
  for (size_t i = 0; i < script.size(); ++i) {
    if (i == fail_at) throw std::runtime_error("a cycle that fails");
    if (script[i].bytes > 0) {
      alive.push_back(BufferHandle(AllocateHere(script[i].bytes)));
    } else {
      alive.erase(alive.begin() + script[i].release);
    }
  }
}

void History(Histories& histories, Workspace& workspace, std::vector<Script>& family,
             int magnitude) {
  const size_t cycles = histories.Below(30);
  for (size_t i = 0; i < cycles; ++i) {
    if (family.empty() || histories.Chance(10)) {
      Script script;
      histories.Extend(script, 0, 1 + histories.Below(60), magnitude);
      family.push_back(script);
    } else if (histories.Chance(30)) {
      family.push_back(histories.Like(family[histories.Below(family.size())], magnitude));
    }
    const Script& script = family[histories.Below(family.size())];
    const size_t repetitions = 1 + (histories.Chance(30) ? histories.Below(12) : 0);
    for (size_t n = 0; n < repetitions; ++n) Cycle(workspace, script);
    if (histories.Chance(5)) {
      EXPECT_THROW(Cycle(workspace, script, histories.Below(script.size())), std::runtime_error);
    }
    if (histories.Chance(2)) workspace.Trim();
    if (histories.Chance(1)) workspace.Destroy();
    if (histories.Chance(2)) Reclaimer::Global().RunNow();
  }
}

TEST(WorkspaceLiveness, ACycleThatRepeatsIsLearnedWhateverCameBefore) {
  const char* seed_text = std::getenv("TIDEPOOL_MODEL_SEED");
  const char* rounds_text = std::getenv("TIDEPOOL_MODEL_ROUNDS");
  const uint64_t seed = seed_text != nullptr ? std::stoull(seed_text) : 20261122;
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 600;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  SimulatedDevice::Get().set_capacity(size_t{1} << 38);
  SimulatedDevice::Get().set_reserve_bytes(size_t{64} << 30);
  double worst_held = 0, worst_planned = 0;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    Histories histories(seed + round);
    SCOPED_TRACE("TIDEPOOL_MODEL_SEED=" + std::to_string(seed + round) +
                 " TIDEPOOL_MODEL_ROUNDS=1");
    WorkspaceConfig config =
        histories.Chance(70) ? WorkspaceConfig::Inference() : WorkspaceConfig::Training();
    config.prefault = false;
    config.plan_search_seconds = 0;
    Workspace workspace("w", config, Device{DeviceType::Named("simulated"), 0});
    const int64_t before = HeldBytes();
    const auto held = [before] { return HeldBytes() - before; };
    const int magnitude = static_cast<int>(histories.Below(3));
    std::vector<Script> family;
    History(histories, workspace, family, magnitude);
    Script script;
    if (family.empty() || histories.Chance(20)) {
      histories.Extend(script, 0, 1 + histories.Below(60), magnitude);
    } else if (histories.Chance(60)) {
      script = histories.Like(family[histories.Below(family.size())], magnitude);
    } else {
      script = family[histories.Below(family.size())];
    }
    for (int i = 0; i < 3; ++i) Cycle(workspace, script);
    WorkspaceStats learned = workspace.stats();
    for (int i = 0; i < 5; ++i) Cycle(workspace, script);
    ASSERT_EQ(workspace.stats().misses, learned.misses) << "round " << round;
    ASSERT_EQ(workspace.stats().spills, learned.spills) << "round " << round;
    for (int i = 0; i < 300; ++i) Cycle(workspace, script);
    ASSERT_EQ(workspace.stats().misses, learned.misses) << "round " << round;
    const auto bound = static_cast<double>(PeakOfItsOwn(script));
    worst_held = std::max(worst_held, (held() - kSlackBytes) / bound);
    worst_planned = std::max(worst_planned, workspace.stats().planned_peak_bytes / bound);
    ASSERT_LE(held(), bound * 1.1 + kSlackBytes)
        << "planned " << workspace.stats().planned_peak_bytes << ", for itself alone " << bound
        << ", plans " << workspace.stats().plans_kept << ", round " << round;
  }
  std::printf("held beyond %d MiB / planned alone at most %.3f; planned / planned alone %.3f\n",
              static_cast<int>(kSlackBytes >> 20), worst_held, worst_planned);
}

// Kinds of cycles that begin alike, in turns: each is made around what the others have alive where
// they part, also where it parts from several. Sizes of few kinds make them meet.
TEST(WorkspaceLiveness, KindsOfCyclesInTurnsStopMissing) {
  const char* seed_text = std::getenv("TIDEPOOL_MODEL_SEED");
  const uint64_t seed = seed_text != nullptr ? std::stoull(seed_text) : 20261122;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (int round = 0; round < 400; ++round) {
    Histories histories(seed + round);
    WorkspaceConfig config = WorkspaceConfig::Inference();
    config.plan_search_seconds = 0;
    Workspace workspace("w", config);
    std::vector<Script> kinds(2 + histories.Below(4));
    for (Script& script : kinds) {
      const size_t requests = 2 + histories.Below(3);
      size_t alive = 0;
      for (size_t i = 0; i < requests; ++i) {
        script.push_back({64 * (1 + histories.Below(2)), 0});
        ++alive;
        if (histories.Chance(40)) script.push_back({0, histories.Below(alive--)});
      }
    }
    const auto turns = [&](int count) {
      for (int i = 0; i < count; ++i) {
        for (const Script& script : kinds) Cycle(workspace, script);
      }
    };
    turns(40);
    const uint64_t misses = workspace.stats().misses;
    turns(20);
    ASSERT_EQ(workspace.stats().misses, misses) << "TIDEPOOL_MODEL_SEED=" << seed + round;
    if (round % 8 != 0) continue;
    // It is looked ever more rarely whether less would do for one of them.
    turns(9000);
    ASSERT_LE(workspace.stats().misses - misses, 4 * kinds.size())
        << "TIDEPOOL_MODEL_SEED=" << seed + round;
  }
}

// The same requests, released in an order that changes every so many cycles: plans get the longest
// lifetimes there were, and looking for shorter ones becomes rare.
TEST(WorkspaceLiveness, OrdersOfReleaseInTurnsStopMissing) {
  for (const WorkspaceConfig& base : {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    for (const int period : {1, 2, 8, 9, 12, 100}) {
      WorkspaceConfig config = base;
      config.plan_search_seconds = 0;
      Workspace workspace("w", config);
      const auto cycles = [&](int begin, int end) {
        for (int i = begin; i < end; ++i) {
          WorkspaceScope scope(workspace);
          BufferHandle a(AllocateHere(1000)), b(AllocateHere(2000));
          (i / period % 2 == 0 ? a : b) = BufferHandle();
          BufferHandle c(AllocateHere(1500)), d(AllocateHere(500));
        }
      };
      cycles(0, 3000);
      const WorkspaceStats before = workspace.stats();
      cycles(3000, 4000);
      EXPECT_LE(workspace.stats().misses - before.misses, 2u) << "period " << period;
      EXPECT_LE(workspace.stats().plans - before.plans, 4u) << "period " << period;
    }
  }
}

// What is refused is no request of the cycle: it teaches nothing, again and again.
TEST(WorkspaceLiveness, RefusedRequestsTeachNothing) {
  for (const WorkspaceConfig& base : {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    WorkspaceConfig config = base;
    config.max_size = size_t{1} << 16;
    Workspace workspace("w", config);
    for (int i = 0; i < 100; ++i) {
      WorkspaceScope scope(workspace);
      BufferHandle a(AllocateHere(100));
      EXPECT_THROW(AllocateHere(size_t{1} << 17), OutOfMemoryError);
      BufferHandle b(AllocateHere(200));
    }
    EXPECT_LE(workspace.stats().plans, 2u);
  }
}

// What another thread has released serves the next request, planned or not.
TEST(WorkspaceLiveness, ReleasesElsewhereAreSeenByRequestsThatNoPlanPlaces) {
  for (const WorkspaceConfig& base : {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    WorkspaceConfig config = base;
    config.initial_size = size_t{1} << 20;
    config.policy_spill = SpillPolicy::kFail;
    Workspace workspace("w", config);
    {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> alive;
      for (int i = 0; i < 3000; ++i) alive.push_back(BufferHandle(AllocateHere(64)));
    }
    std::mt19937_64 random(1);
    for (int cycle = 0; cycle < 5; ++cycle) {
      WorkspaceScope scope(workspace);
      for (int i = 0; i < 400; ++i) {
        BufferHandle array(AllocateHere(64 + 64 * (random() % 100)));
        std::thread([moved = std::move(array)]() mutable { moved.Reset(); }).join();
      }
    }
    EXPECT_EQ(workspace.stats().spills, 0u);
  }
}

}  // namespace
}  // namespace tidepool
