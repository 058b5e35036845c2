#include "tidepool/memory/recording/replay_places.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/locked_resource.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::internal {
namespace {

size_t AlignmentOf(const ReplayScript::Block& block) { return size_t{1} << block.alignment_log2; }

// glibc's and its like.
class GeneralPlace final : public ReplayPlace {
 public:
  explicit GeneralPlace(Allocator allocator) : allocator_(std::move(allocator)) {}
  std::unique_ptr<ReplayThread> ForThread() override {
    return std::make_unique<Thread>(allocator_);
  }

 private:
  class Thread final : public ReplayThread {
   public:
    explicit Thread(const Allocator& allocator) : allocator_(allocator) {}
    void* Allocate(const ReplayScript::Block& block, void** data) override {
      constexpr uint8_t kUsualLog2 = 4;
      if (block.alignment_log2 <= kUsualLog2) {
        return *data = allocator_.allocate(std::max<size_t>(block.bytes, 1));
      }
      if (allocator_.allocate_aligned == nullptr) return *data = nullptr;
      const size_t alignment = AlignmentOf(block);
      const size_t bytes = std::max<size_t>(block.bytes, 1);
      return *data =
                 allocator_.allocate_aligned(alignment, (bytes + alignment - 1) & ~(alignment - 1));
    }
    void Release(void* block, const ReplayScript::Block&) override { allocator_.release(block); }
    void EndCycle() override { allocator_.end_cycle(); }

   private:
    const Allocator& allocator_;
  };

  const Allocator allocator_;
};

// Single arrays.
void* NewOnHeap(const ReplayScript::Block& block, Device device, void** data) {
  Buffer* const buffer = NewHeapBuffer(block.bytes, std::max(AlignmentOf(block), kHeapAlignment),
                                       MemoryKind::kAllocated, device);
  *data = buffer->data;
  return buffer;
}

class HeapPlace final : public ReplayPlace {
 public:
  explicit HeapPlace(Device device) : device_(device) {}
  std::unique_ptr<ReplayThread> ForThread() override { return std::make_unique<Thread>(device_); }
  bool writes_bytes() const override { return device_ == Host(); }

 private:
  class Thread final : public ReplayThread {
   public:
    explicit Thread(Device device) : device_(device) {}
    void* Allocate(const ReplayScript::Block& block, void** data) override {
      return NewOnHeap(block, device_, data);
    }
    void Release(void* block, const ReplayScript::Block&) override {
      BufferHandle(static_cast<Buffer*>(block)).Reset();
    }

   private:
    const Device device_;
  };

  const Device device_;
};

class PoolPlace final : public ReplayPlace {
 public:
  explicit PoolPlace(Device device)
      : device_(device),
        pages_({}, GetDeviceProvider(device, "replay")),
        pool_(pages_, size_t{1} << 20,
              std::max<size_t>(kAlignment, GetDeviceProvider(device, "replay").traits().alignment),
              {.grows = true, .coarse_alignment = kCoarse}),
        locked_(pool_) {}
  std::unique_ptr<ReplayThread> ForThread() override { return std::make_unique<Thread>(locked_); }
  bool writes_bytes() const override { return device_ == Host(); }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kCoarse = 4096;

  class Thread final : public ReplayThread {
   public:
    explicit Thread(MemoryResource& pool) : pool_(pool) {}
    void* Allocate(const ReplayScript::Block& block, void** data) override {
      const Allocation made = pool_.Allocate(block.bytes, AlignmentOf(block));
      *data = made.data;
      return made.token;
    }
    void Release(void* block, const ReplayScript::Block& as) override {
      pool_.Release(block, as.bytes, AlignmentOf(as));
    }

   private:
    MemoryResource& pool_;
  };

  const Device device_;
  PagesResource pages_;
  Pool pool_;
  LockedResource locked_;
};

// Workspaces of each thread, by the names of its cycles.
class WorkspacePlace final : public ReplayPlace {
 public:
  WorkspacePlace(const ReplayScript& script, Device device, bool raw)
      : script_(script), device_(device), raw_(raw) {}
  std::unique_ptr<ReplayThread> ForThread() override { return std::make_unique<Thread>(*this); }
  bool writes_bytes() const override { return device_ == Host(); }
  void WatchPlanning() override { watches_planning_ = true; }
  void AddCounts(ReplayRun& run) const override {
    run.hits += hits_;
    run.misses += misses_;
    run.spills += spills_;
    run.plans += plans_;
  }
  double planning_seconds() const override { return planning_.count(); }

 private:
  class Thread final : public ReplayThread {
   public:
    explicit Thread(WorkspacePlace& place) : place_(place) {}
    ~Thread() override {
      while (!scopes_.empty()) scopes_.pop_back();
      const std::lock_guard<std::mutex> lock(place_.mutex_);
      for (const auto& [name, workspace] : workspaces_) {
        const WorkspaceStats stats = workspace->stats();
        place_.hits_ += static_cast<int64_t>(stats.hits);
        place_.misses_ += static_cast<int64_t>(stats.misses);
        place_.spills_ += static_cast<int64_t>(stats.spills);
        place_.plans_ += static_cast<int64_t>(stats.plans);
      }
      place_.planning_ += planning_;
    }
    void* Allocate(const ReplayScript::Block& block, void** data) override {
      if (place_.raw_) {
        if (block.in_cycle) return *data = AllocateBytesHere(block.bytes, AlignmentOf(block));
        ScopeOutOfWorkspaces out;
        return *data = AllocateBytesHere(block.bytes, AlignmentOf(block));
      }
      if (!block.in_cycle || AlignmentOf(block) > kMostAlignment) {
        return NewOnHeap(block, place_.device_, data);
      }
      Buffer* const buffer = AllocateHere(block.bytes);
      *data = buffer->data;
      return buffer;
    }
    void Release(void* block, const ReplayScript::Block& as) override {
      if (place_.raw_) return ReleaseBytes(block, as.bytes, AlignmentOf(as));
      BufferHandle(static_cast<Buffer*>(block)).Reset();
    }
    void BeginCycle(const ReplayScript::Cycle& cycle) override {
      std::unique_ptr<Workspace>& workspace = workspaces_[{cycle.name, cycle.alignment}];
      if (workspace == nullptr) {
        WorkspaceConfig config;
        config.alignment = cycle.alignment;
        config.use_cycle_detector = false;
        config.plan_search_seconds = 0;
        const std::string& name = place_.script_.names()[cycle.name];
        workspace = std::make_unique<Workspace>(
            absl::StrCat("replay of ", name.empty() ? "a period" : name), config, place_.device_);
      }
      WithPlanningWatched(*workspace, [&] { scopes_.emplace_back(*workspace); });
      open_.push_back(workspace.get());
    }
    void EndCycle() override {
      if (scopes_.empty()) return;
      WithPlanningWatched(*open_.back(), [&] { scopes_.pop_back(); });
      open_.pop_back();
    }

   private:
    template <typename Change>
    void WithPlanningWatched(const Workspace& workspace, const Change& change) {
      if (!place_.watches_planning_) return change();
      const uint64_t plans = workspace.stats().plans;
      const auto begin = std::chrono::steady_clock::now();
      change();
      const auto end = std::chrono::steady_clock::now();
      if (workspace.stats().plans != plans) planning_ += end - begin;
    }

    WorkspacePlace& place_;
    std::chrono::duration<double> planning_{0};
    std::vector<const Workspace*> open_;  // of scopes_
    std::map<std::pair<uint32_t, size_t>, std::unique_ptr<Workspace>> workspaces_;
    std::deque<WorkspaceScope> scopes_;
  };

 public:
  static constexpr size_t kMostAlignment = 4096;

 private:
  const ReplayScript& script_;
  const Device device_;
  const bool raw_;
  bool watches_planning_ = false;
  std::mutex mutex_;  // guards what is below
  int64_t hits_ = 0, misses_ = 0, spills_ = 0, plans_ = 0;
  std::chrono::duration<double> planning_{0};
};

}  // namespace

std::unique_ptr<ReplayPlace> MakeReplayPlace(const std::string& name, const ReplayScript& script,
                                             Device device, std::string* absent) {
  if (name == "workspace") return std::make_unique<WorkspacePlace>(script, device, /*raw=*/false);
  if (name == "heap") return std::make_unique<HeapPlace>(device);
  if (name == "pool") return std::make_unique<PoolPlace>(device);
  const std::vector<std::string> names = ReplayAllocators();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    ThrowInvalidArgument(absl::StrCat("replay: found allocator \"", name, "\", expected one of ",
                                      absl::StrJoin(names, ", ")));
  }
  if (device != Host()) {
    *absent = absl::StrCat(name, ": serves the host alone, found device ", DeviceName(device));
    return nullptr;
  }
  if (name == "raw") return std::make_unique<WorkspacePlace>(script, device, /*raw=*/true);
  std::vector<std::string> others;
  for (Allocator& allocator : FindAllocators(&others)) {
    if (allocator.name == name) return std::make_unique<GeneralPlace>(std::move(allocator));
  }
  for (const std::string& line : others) {
    if (line.rfind(name + ":", 0) == 0) *absent = line;
  }
  return nullptr;
}

}  // namespace tidepool::internal

namespace tidepool {

std::vector<std::string> ReplayAllocators() {
  return {"workspace", "raw", "pool", "heap", "glibc", "tcmalloc", "mimalloc", "jemalloc"};
}

}  // namespace tidepool
