// Random cycles whose lifetimes are other ones each time for a while and regular for a while,
// beside raw bytes of ever different sizes, in workspaces and in a pool of them. What lives at once
// never overlaps and keeps its bytes, whatever plan is followed, given up, made again, loaded,
// forgotten. It counts how often plans were given up and came back and how many cycles of raw bytes
// had one chunk, so that it meets them for sure.
//
// TIDEPOOL_MODEL_CYCLES sets the number of cycles, TIDEPOOL_MODEL_SEED repeats a run.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/cycle_heap.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_model.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr int kKinds = 3;

struct Met {
  uint64_t given_up = 0;  // plans
  int back = 0;           // regular times in which kinds had a plan again
  int followed = 0;       // cycles without a miss in it
  int arenas = 0;         // cycles whose raw bytes had one chunk
};

class GivenUpModel {
 public:
  explicit GivenUpModel(uint32_t seed) : random_(seed) {
    WorkspaceConfig config;
    config.plan_search_seconds = 0;
    config.huge_pages = config.prefault = false;
    config.use_cycle_detector = false;  // what outlives its cycle is wanted here
    if (random_() % 2 == 0) config.initial_size = random_() % (1 << 20);
    if (random_() % 2 == 0) config.alignment = 256;
    workspace_ = std::make_unique<Workspace>("lives", config);
    config.initial_size = 0;
    pool_ = std::make_unique<WorkspacePool>("pooled lives", config);
    path_ = testing::TempDir() + "/given_up_model_" + std::to_string(getpid()) + ".plans";
  }
  ~GivenUpModel() {
    while (!late_.empty()) ReleaseLate();
    std::remove(path_.c_str());
  }

  // Alternately irregular and regular times, of one kind of cycle or of some in turns.
  void Run(int cycles) {
    for (int cycle = 0; cycle < cycles && !testing::Test::HasFailure();) {
      const bool pooled = random_() % 3 == 0;
      const size_t kinds = random_() % 3 == 0 ? 1 + random_() % kKinds : 1;
      const size_t first = random_() % kKinds;
      const bool regular = random_() % 2 == 0;
      const int length = static_cast<int>(regular ? 60 + random_() % 400 : 20 + random_() % 60);
      const uint64_t seed = random_();
      const int64_t without = WithoutPlan(pooled);
      for (int i = 0; i < length; ++i, ++cycle) {
        const size_t kind = (first + static_cast<size_t>(i) % kinds) % kKinds;
        const uint64_t misses = Misses(pooled);
        PlayCycle(pooled, kind, regular ? seed + kind : random_());
        if (regular && i > length / 2 && Misses(pooled) == misses) ++met_.followed;
      }
      if (regular && WithoutPlan(pooled) < without) ++met_.back;
      Manage();
    }
    met_.given_up = workspace_->stats().plans_given_up + pool_->stats().plans_given_up;
  }
  const Met& met() const { return met_; }

 private:
  struct Live {
    BufferHandle handle;
    unsigned char mark;
  };

  uint64_t Misses(bool pooled) const {
    return pooled ? pool_->stats().misses : workspace_->stats().misses;
  }
  // Kinds whose plan was given up and is not back.
  int64_t WithoutPlan(bool pooled) const {
    const std::string report = pooled ? pool_->PlanReport() : workspace_->PlanReport();
    return std::count(report.begin(), report.end(), '\n');
  }

  void PlayCycle(bool pooled, size_t kind, uint64_t lives) {
    if (pooled) {
      PooledScope scope(*pool_);
      PlayHere(pooled, kind, lives);
    } else {
      WorkspaceScope scope(*workspace_);
      PlayHere(pooled, kind, lives);
    }
  }

  // In the open cycle: always the same requests of a kind.
  void PlayHere(bool pooled, size_t kind, uint64_t lives_seed) {
    std::mt19937_64 sizes(7 + kind), lives(lives_seed);
    std::vector<Live> live;
    const size_t count = 20 + 5 * kind;
    for (size_t i = 0; i < count; ++i) {
      Allocate(live, 1000 * (kind + 1) + (sizes() % 6 << 16) + sizes() % 5000);
      if (random_() % 200 == 0)
        Allocate(live, 1 + random_() % 100000);  // once in a while another one
      while (live.size() > 6 || (!live.empty() && lives() % 3 == 0)) {
        Release(live, lives() % live.size());
      }
    }
    if (random_() % 3 == 0) PlayRaw(pooled);
    const bool leaves = random_() % 50 == 0;
    while (!live.empty()) {
      if (leaves) {  // it dies with the cycle
        Check(live.back());
        live_.erase(live.back().handle->data);
        live.pop_back();
      } else {
        Release(live, live.size() - 1);
      }
    }
    ASSERT_TRUE(live_.empty());
  }

  // Some stay until a later cycle.
  void PlayRaw(bool pooled) {
    std::mt19937 random(static_cast<uint32_t>(random_()));
    PlayRawBlocks(random);
    if (random_() % 40 == 0) {
      late_.push_back({AllocateBytesHere(1 << 20), 0});
      *static_cast<unsigned char*>(late_.back().first) = late_.back().second =
          static_cast<unsigned char>(random_());
    }
    if (!late_.empty() && random_() % 20 == 0) ReleaseLate();
    if (!pooled) met_.arenas += internal::CycleHeap::Of(*workspace_->core()).has_arena();
  }
  void ReleaseLate() {
    const auto [block, mark] = late_.back();
    late_.pop_back();
    ASSERT_EQ(*static_cast<unsigned char*>(block), mark);
    ReleaseBytes(block, 1 << 20);
  }

  void Allocate(std::vector<Live>& live, size_t bytes) {
    Live made{BufferHandle(AllocateHere(bytes)), static_cast<unsigned char>(random_())};
    std::byte* const begin = made.handle->data;
    const auto after = live_.lower_bound(begin);
    ASSERT_TRUE(after == live_.end() || begin + bytes <= after->first);
    ASSERT_TRUE(after == live_.begin() || std::prev(after)->second <= begin);
    live_[begin] = begin + bytes;
    for (size_t at = 0; at < bytes; at += 4096) begin[at] = std::byte{made.mark};
    begin[bytes - 1] = std::byte{made.mark};
    live.push_back(std::move(made));
  }
  void Check(const Live& live) {
    const std::byte* const begin = live.handle->data;
    ASSERT_TRUE(live.handle->IsAlive());
    for (size_t at = 0; at < live.handle->bytes; at += 4096) {
      ASSERT_EQ(begin[at], std::byte{live.mark}) << at << " of " << live.handle->bytes;
    }
    ASSERT_EQ(begin[live.handle->bytes - 1], std::byte{live.mark});
  }
  void Release(std::vector<Live>& live, size_t which) {
    Check(live[which]);
    live_.erase(live[which].handle->data);
    BufferHandle handle = std::move(live[which].handle);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    if (random_() % 100 == 0) {
      std::thread([gone = std::move(handle)]() mutable { gone.Reset(); }).join();
    }
  }

  void Manage() {
    switch (random_() % 12) {
      case 0:
        workspace_->Trim();
        pool_->Trim();
        break;
      case 1:
        workspace_->SavePlans(path_);
        saved_ = true;
        break;
      case 2:
        if (saved_) workspace_->LoadPlans(path_);
        break;
      case 3:
        (void)workspace_->PlanReport();
        (void)pool_->PlanReport();
        break;
      default:
        break;
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<WorkspacePool> pool_;
  std::map<std::byte*, std::byte*> live_;              // begin and end
  std::vector<std::pair<void*, unsigned char>> late_;  // raw bytes
  std::string path_;
  bool saved_ = false;
  Met met_;
};

TEST(WorkspaceModel, PlansThatAreGivenUpAndComeBackServeWhatTheModelSays) {
  const char* const seed_text = std::getenv("TIDEPOOL_MODEL_SEED");
  const char* const cycles_text = std::getenv("TIDEPOOL_MODEL_CYCLES");
  const uint32_t seed =
      seed_text != nullptr ? static_cast<uint32_t>(std::stoul(seed_text)) : std::random_device()();
  const int cycles = cycles_text != nullptr ? std::stoi(cycles_text) : 80000;
  std::printf("seed %u\n", seed);
  Met all;
  for (uint32_t run = 0; run < 40; ++run) {
    GivenUpModel model(seed + run);
    model.Run(cycles / 40);
    all.given_up += model.met().given_up;
    all.back += model.met().back;
    all.followed += model.met().followed;
    all.arenas += model.met().arenas;
  }
  std::printf(
      "%lu plans given up, %d times back, %d cycles that followed one then, %d of raw bytes "
      "with one chunk\n",
      all.given_up, all.back, all.followed, all.arenas);
  if (cycles < 80000) return;
  EXPECT_GE(all.given_up, 40u);
  EXPECT_LE(all.given_up, 300u) << "ever more rarely";
  EXPECT_GE(all.back, 8);
  EXPECT_GE(all.followed, 10000);
  EXPECT_GE(all.arenas, 6000);
}

}  // namespace
}  // namespace tidepool
