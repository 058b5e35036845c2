// What the model test is made of: a thread that releases, random configurations, the model's state.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_MODEL_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_MODEL_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/outside_blocks.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

// Any configuration that is legal on `device`, small sizes.
inline WorkspaceConfig RandomWorkspaceConfig(std::mt19937& random, Device device) {
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  auto chance = [&](int percent) { return below(100) < static_cast<size_t>(percent); };
  for (;;) {
    WorkspaceConfig config;
    config.initial_size = chance(60) ? 0 : below(1 << 16);
    config.min_size = chance(80) ? 0 : below(1 << 16);
    config.max_size = chance(70) ? 0 : below(1 << 18);
    config.overallocation_limit =
        chance(50) ? Overallocation::Ratio(0.1 * below(20)) : Overallocation::Bytes(below(10000));
    config.policy_allocation = static_cast<AllocationPolicy>(below(10) == 0 ? 2 : below(2));
    config.policy_learning = static_cast<LearningPolicy>(chance(60) ? 3 + below(2) : below(5));
    if (config.policy_learning == LearningPolicy::kOverTime) {
      config.cycles_before_initialization = static_cast<int>(below(4));
    }
    config.policy_spill = static_cast<SpillPolicy>(chance(15) ? 0 : 1 + below(2));
    config.temp_block_size = 4096 << below(8);
    config.alignment = size_t{16} << (chance(10) ? 8 : below(5));
    config.debug_mode = chance(85) ? DebugMode::kDisabled : static_cast<DebugMode>(below(4));
    config.use_cycle_detector = config.debug_mode != DebugMode::kGuard;  // leaks are wanted here
    if (chance(4)) config.workspace_mode = WorkspaceMode::kNone;
    config.huge_pages = chance(50);
    config.prefault = chance(50);
    if (config.Reasons(device).empty()) return config;
  }
}

inline WorkspaceConfig RandomPoolConfig(std::mt19937& random) {
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.max_size = below(2) == 0 ? 0 : below(1 << 18);
  config.temp_block_size = 4096 << below(8);
  config.alignment = size_t{16} << below(5);
  config.use_cycle_detector = false;
  config.plan_search_seconds = below(2) == 0 ? 0 : 2;
  return config;
}

// Releases handles on its own thread, when it gets to it or at once.
class Releaser {
 public:
  Releaser() : thread_([this] { Run(); }) {}
  ~Releaser() {
    Put([this] { stopped_ = true; });
    thread_.join();
  }
  void Release(BufferHandle handle) {
    Put([kept = std::make_shared<BufferHandle>(std::move(handle))]() mutable { kept.reset(); });
  }
  void Wait() {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    Put([&] {
      std::lock_guard<std::mutex> lock(mutex);
      done = true;
      changed.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return done; });
  }

 private:
  void Put(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  void Run() {
    while (!stopped_) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;  // its own thread's
  std::thread thread_;
};

struct ModelWorkspace {
  std::shared_ptr<Workspace> workspace;  // null once gone; of a pool, its lease goes with it
  bool pooled = false;
  bool transparent = false;
  int depth = 0;  // scopes of it on the stack
  uint64_t generation = 0;
  uint64_t failed = 0;
  size_t bytes_this_cycle = 0;
  size_t bytes_last_cycle = 0;
  int64_t on_the_way = 0;  // bytes released on the other thread in this cycle
  struct Step {
    size_t bytes;    // 0: release
    size_t release;  // which of the live ones
  };
  std::vector<std::vector<Step>> scripts;  // cycles that are repeated; some begin alike

  // A workspace that may have served before.
  void TakeFrom(WorkspacePool& pool) {
    auto lease = std::make_shared<WorkspaceLease>(pool.Lease());
    Workspace* const leased = &**lease;
    generation = leased->generation();
    failed = leased->stats().failed_cycles;
    bytes_last_cycle = leased->bytes_last_cycle();
    workspace = std::shared_ptr<Workspace>(std::move(lease), leased);
  }
};

// A cycle of up to 60 steps that begins like `like`, somewhere, or not at all.
template <typename RandomSize>
std::vector<ModelWorkspace::Step> RandomScript(std::mt19937& random,
                                               const std::vector<ModelWorkspace::Step>& like,
                                               RandomSize random_size) {
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::vector<ModelWorkspace::Step> script(like.begin(), like.begin() + below(like.size() + 1));
  size_t live = 0;
  for (const ModelWorkspace::Step& step : script) live += step.bytes > 0 ? 1 : -1;
  const size_t steps = below(60);
  while (script.size() < steps) {
    if (live > 0 && below(100) < 45) {
      script.push_back({0, below(live--)});
    } else {
      script.push_back({1 + random_size(), 0});
      ++live;
    }
  }
  return script;
}

// Requests that are always the same, of which two live to the end, other ones each time: a plan of all of
// their lifetimes holds several times what is alive. (Seldom given up: most cycles are never planned. That is
// given_up_model_test.cc's.)
inline std::vector<ModelWorkspace::Step> DrawnLivesScript(std::mt19937& random) {
  constexpr size_t kRequests = 24;
  const size_t stay[] = {random() % kRequests, random() % kRequests};
  std::vector<ModelWorkspace::Step> script;
  size_t live = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    script.push_back({(1 + i * 7 % 5) << 16, 0});
    if (i == stay[0] || i == stay[1]) {
      ++live;
    } else {
      script.push_back({0, live});
    }
  }
  return script;
}

// Of raw bytes outside of cycles: spans, of which some are kept.
inline int64_t OutsideBytes() {
  return static_cast<int64_t>(internal::OutsideBlocks::Global().TakenBytes());
}

// Raw bytes of ever different sizes, all of which are released: what they are cut from may become one chunk.
inline void PlayRawBlocks(std::mt19937& random) {
  struct Block {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> live;
  const auto release = [&](size_t i) {
    const Block block = live[i];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(block.data[0], block.mark);
    EXPECT_EQ(block.data[block.bytes - 1], block.mark);
    ReleaseBytes(block.data, block.bytes);
  };
  try {
    for (int i = 0; i < 16; ++i) {
      const size_t bytes = (size_t{1} << (12 + random() % 10)) + random() % 100000;
      const auto mark = static_cast<unsigned char>(random());
      live.push_back({static_cast<unsigned char*>(AllocateBytesHere(bytes)), bytes, mark});
      live.back().data[0] = live.back().data[bytes - 1] = mark;
      while (live.size() > 6 || (!live.empty() && random() % 3 == 0))
        release(random() % live.size());
    }
  } catch (const OutOfMemoryError&) {  // beyond max_size
  }
  while (!live.empty()) release(live.size() - 1);
}

struct ModelFrame {
  ModelWorkspace* entered;  // null: out of workspaces
  std::optional<WorkspaceScope> scope;
  std::optional<BorrowScope> borrow;
  std::optional<ScopeOutOfWorkspaces> out;
};

struct ModelBuffer {
  BufferHandle handle;
  ModelWorkspace* owner;  // null: heap
  uint64_t generation;
  size_t rounded;
  unsigned char pattern;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_MODEL_H_
