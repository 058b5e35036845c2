// Random operations on several workspaces of random legal configurations, against a model that is
// a few maps: no two live blocks overlap, alignment holds, contents stay, every handle's IsAlive()
// is what the model says, counters and ledger agree, and everything is given back at the end.
//
// TIDEPOOL_MODEL_OPERATIONS sets their number, TIDEPOOL_MODEL_SEED repeats a run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/test_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_model.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed) {
    ledger_before_ = LedgerTotal() - OutsideBytes();
    allocated_before_ = LedgerOf(MemoryKind::kAllocated) - OutsideBytes();
    pool_ = std::make_unique<WorkspacePool>("pool", RandomPoolConfig(random_), TestDevice());
    for (int i = 0; i < 6; ++i) AddWorkspace();
  }

  void Run(int64_t operations) {
    for (operation_ = 0; operation_ < operations && !testing::Test::HasFailure(); ++operation_) {
      Step();
      if (operation_ % 2048 == 0) CheckAll();
    }
    while (!frames_.empty()) Leave();
    CheckAll();
    for (const ModelWorkspace* model : present_)
      given_up_ += model->workspace->stats().plans_given_up;
    for (auto& workspace : workspaces_) workspace->workspace.reset();
    const WorkspacePoolStats pooled = pool_->stats();
    EXPECT_EQ(pooled.leased + pooled.open_bytes, 0u);
    pool_.reset();
    while (!buffers_.empty()) Drop(buffers_.size() - 1);
    releaser_.Wait();
    EXPECT_EQ(LedgerTotal() - OutsideBytes(), ledger_before_) << "not everything was given back";
    EXPECT_TRUE(live_.empty());
    std::printf("%s: %ld operations, %ld requests refused, %ld cycles, %ld planned requests\n",
                DeviceName(TestDevice()).c_str(), operation_, refused_, cycles_, hits_);
    std::printf("pool: %zu plans, %lu cycles, %lu hits, %lu spills; plans given up: %lu and %ld\n",
                pooled.plans_kept, pooled.cycles, pooled.hits, pooled.spills, pooled.plans_given_up,
                given_up_);
  }

 private:
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Chance(int percent) { return Below(100) < static_cast<size_t>(percent); }

  void AddWorkspace() {
    auto model = std::make_unique<ModelWorkspace>();
    WorkspaceConfig config = RandomWorkspaceConfig(random_, TestDevice());
    model->pooled = Chance(30);
    if (model->pooled) {
      config = pool_->config();
      model->TakeFrom(*pool_);
    } else {
      model->workspace = std::make_shared<Workspace>("w" + std::to_string(workspaces_.size()),
                                                     config, TestDevice());
    }
    model->transparent = config.workspace_mode == WorkspaceMode::kNone ||
                         config.debug_mode == DebugMode::kBypassEverything;
    present_.push_back(model.get());
    workspaces_.push_back(std::move(model));
  }

  ModelWorkspace* Place() {
    if (frames_.empty() || frames_.back()->entered == nullptr) return nullptr;
    return frames_.back()->entered->transparent ? nullptr : frames_.back()->entered;
  }
  bool Alive(const ModelBuffer& buffer) const {
    if (buffer.handle->closed) return false;
    if (buffer.owner == nullptr) return true;
    return buffer.owner->depth > 0 && buffer.owner->generation == buffer.generation;
  }

  void Step() {
    switch (Below(32)) {
      case 0:
      case 1:
        return Enter(*present_[Below(present_.size())]);
      case 2:
      case 3:
        return frames_.empty() ? void() : Leave();
      case 4:
        return Borrow(*present_[Below(present_.size())]);
      case 5:
        return StepOut();
      case 6:
        return Chance(30) ? ThrowThroughScopes() : void();
      case 7:
        return Chance(20) ? Manage(*present_[Below(present_.size())]) : void();
      case 8:
        return RunScript(*present_[Below(present_.size())]);
      case 9:
        return buffers_.empty() ? void() : ReleaseElsewhere(Below(buffers_.size()));
      case 10:
        return buffers_.empty() ? void() : CloseEarly(Below(buffers_.size()));
      case 11:
        return buffers_.empty() ? void() : Check(buffers_[Below(buffers_.size())]);
      default:
        if (!buffers_.empty() && Below(500) < buffers_.size()) return Drop(Below(buffers_.size()));
        Allocate(RandomSize());
    }
  }

  size_t RandomSize() {
    if (Chance(1)) return 0;
    return Chance(5) ? Below(100000) : 1 + Below(size_t{1} << (4 + Below(9)));
  }

  void PushFrame(std::unique_ptr<ModelFrame> frame) {
    frames_.push_back(std::move(frame));
    EXPECT_EQ(CurrentPlace() == nullptr, Place() == nullptr);
  }
  void Enter(ModelWorkspace& model) {
    if (frames_.size() >= 8) return;
    auto frame = std::make_unique<ModelFrame>();
    frame->entered = &model;
    frame->scope.emplace(*model.workspace);
    if (model.depth++ == 0) {
      ++model.generation;
      model.bytes_this_cycle = 0;
      model.on_the_way = 0;
    }
    PushFrame(std::move(frame));
  }
  void Borrow(ModelWorkspace& model) {
    auto frame = std::make_unique<ModelFrame>();
    frame->entered = &model;
    if (model.depth == 0) {
      EXPECT_THROW(frame->borrow.emplace(*model.workspace), Error);
    } else if (frames_.size() < 8) {
      frame->borrow.emplace(*model.workspace);
      ++model.depth;
      PushFrame(std::move(frame));
    }
  }
  void StepOut() {
    if (frames_.size() >= 8) return;
    auto frame = std::make_unique<ModelFrame>();
    frame->entered = nullptr;
    frame->out.emplace();
    PushFrame(std::move(frame));
  }

  // Before the scope ends, while contents are still to be read.
  void EndOfScope(bool failed) {
    ModelWorkspace* model = frames_.back()->entered;
    if (model == nullptr || --model->depth > 0) return;
    ++model->depth;  // alive until it ends
    for (ModelBuffer& buffer : buffers_) {
      if (buffer.owner != model || !Alive(buffer)) continue;
      Check(buffer);
      live_.erase(buffer.handle->data);
      allocated_ -= buffer.rounded;
    }
    --model->depth;
    if (failed) ++model->failed;
    model->bytes_last_cycle = model->bytes_this_cycle;
    model->bytes_this_cycle = 0;
    ++cycles_;
  }
  void Leave() {
    EndOfScope(false);
    ModelWorkspace* model = frames_.back()->entered;
    frames_.pop_back();
    CheckCounters(model);
  }
  void ThrowThroughScopes() {
    if (frames_.empty()) return;
    const size_t keep = Below(frames_.size());
    struct Unwind {
      Model* model;
      size_t keep;
      ~Unwind() {
        while (model->frames_.size() > keep) {
          model->EndOfScope(true);
          model->frames_.pop_back();
        }
      }
    };
    try {
      Unwind unwind{this, keep};
      throw std::runtime_error("through scopes");
    } catch (const std::runtime_error&) {
    }
  }

  void Allocate(size_t bytes) {
    ModelWorkspace* place = Place();
    const WorkspaceConfig* config = place != nullptr ? &place->workspace->config() : nullptr;
    BufferHandle handle;
    try {
      handle = BufferHandle(AllocateHere(bytes));
    } catch (const OutOfMemoryError& error) {
      ASSERT_NE(place, nullptr) << error.message();
      ASSERT_TRUE(config->policy_spill == SpillPolicy::kFail ||
                  (config->policy_spill == SpillPolicy::kReallocate && config->max_size > 0))
          << error.message();
      ++refused_;
      return CheckCounters(place);
    }
    const size_t alignment = place != nullptr ? config->alignment : 64;
    ASSERT_EQ(reinterpret_cast<uintptr_t>(handle->data) % alignment, 0);
    ASSERT_EQ(handle->bytes, bytes);
    ASSERT_EQ(handle->attached, place != nullptr);
    size_t rounded = bytes;
    if (place != nullptr) {
      rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
      place->bytes_this_cycle += rounded;
    }
    ModelBuffer buffer{handle, place, place != nullptr ? place->generation : 0, rounded,
                       static_cast<unsigned char>(Below(256))};
    // Neighbours in the order of addresses must not reach into each other.
    const auto after = live_.lower_bound(handle->data);
    std::byte* const end = handle->data + std::max<size_t>(rounded, 1);
    ASSERT_TRUE(after == live_.end() || end <= after->first);
    ASSERT_TRUE(after == live_.begin() || std::prev(after)->second <= handle->data);
    live_[handle->data] = end;
    allocated_ += rounded;
    FillBuffer(*handle.get(), buffer.pattern);
    // The tail is readable, whatever it holds.
    std::byte tail[16];
    FindDeviceProvider(handle->device)->CopyToHost(tail, handle->data + bytes, sizeof tail);
    buffers_.push_back(std::move(buffer));
    if (Chance(10)) CheckCounters(place);
  }

  void Check(const ModelBuffer& buffer) {
    const bool alive = Alive(buffer);
    ASSERT_EQ(buffer.handle->IsAlive(), alive) << "operation " << operation_;
    if (!alive) {
      if (!buffer.handle->closed) {
        ASSERT_NE(buffer.handle->owner->DescribeStale(buffer.handle->stamp), "");
      }
      return;
    }
    ASSERT_EQ(buffer.handle->owner->DescribeStale(buffer.handle->stamp), "");
    ASSERT_TRUE(BufferHolds(*buffer.handle.get(), buffer.pattern))
        << buffer.handle->bytes << " bytes, operation " << operation_;
  }

  // The handle leaves the model; its memory may be anyone's from here on.
  BufferHandle Take(size_t index) {
    ModelBuffer& buffer = buffers_[index];
    Check(buffer);
    if (Alive(buffer)) {
      live_.erase(buffer.handle->data);
      allocated_ -= buffer.rounded;
    }
    BufferHandle handle = std::move(buffer.handle);
    std::swap(buffer, buffers_.back());
    buffers_.pop_back();
    return handle;
  }
  void Drop(size_t index) {
    BufferHandle handle = Take(index);
    if (Chance(20)) BufferHandle copy = handle;
  }
  void ReleaseElsewhere(size_t index) {
    ModelBuffer& buffer = buffers_[index];
    if (buffer.owner != nullptr && Alive(buffer)) buffer.owner->on_the_way += buffer.rounded;
    const bool heap = buffer.owner == nullptr;
    releaser_.Release(Take(index));
    if (heap || Chance(20)) releaser_.Wait();
  }
  void CloseEarly(size_t index) {
    ModelBuffer& buffer = buffers_[index];
    Check(buffer);
    if (Alive(buffer)) {
      live_.erase(buffer.handle->data);
      allocated_ -= buffer.rounded;
    }
    buffer.handle->Close();
    EXPECT_FALSE(buffer.handle->IsAlive());
  }

  void Manage(ModelWorkspace& model) {
    Workspace& workspace = *model.workspace;
    const size_t action = Below(4);
    if (model.pooled && (model.depth > 0 || action < 3)) {
      EXPECT_THROW(workspace.Initialize(), Error);
      EXPECT_THROW(workspace.Destroy(), Error);
      return pool_->Trim();
    }
    if (model.depth > 0) {
      EXPECT_THROW(workspace.Initialize(), Error);
      EXPECT_THROW(workspace.Trim(), Error);
      EXPECT_THROW(workspace.Destroy(), Error);
      return;
    }
    if (action == 0) workspace.Initialize();
    if (action == 1) workspace.Trim();
    if (action == 2) {
      workspace.Destroy();
      model.bytes_last_cycle = 0;
    }
    if (action == 3) {
      hits_ += workspace.stats().hits, given_up_ += workspace.stats().plans_given_up;
      model.workspace.reset();
      std::erase(present_, &model);
      AddWorkspace();
    }
  }

  // The same cycle again, sometimes a little different: what plans are for.
  void RunScript(ModelWorkspace& model) {
    if (model.depth > 0 || frames_.size() >= 8) return;
    if (model.scripts.empty() || Chance(5)) {
      if (model.scripts.size() == 4) model.scripts.erase(model.scripts.begin() + Below(4));
      const auto like = model.scripts.empty() ? std::vector<ModelWorkspace::Step>()
                                              : model.scripts[Below(model.scripts.size())];
      model.scripts.push_back(RandomScript(random_, like, [this] { return RandomSize(); }));
    }
    const auto script = Chance(10) ? DrawnLivesScript(random_)
                                   : model.scripts[Chance(70) ? 0 : Below(model.scripts.size())];
    Enter(model);
    if (Chance(20)) PlayRawBlocks(random_);
    const size_t first = buffers_.size();
    for (const auto& step : script) {
      ++operation_;
      if (testing::Test::HasFatalFailure()) return;
      if (step.bytes > 0) {
        Allocate(Chance(1) ? RandomSize() : step.bytes);
      } else if (first + step.release < buffers_.size() && !Chance(1)) {
        Drop(first + step.release);
      }
    }
    while (buffers_.size() > first && !Chance(2)) Drop(buffers_.size() - 1);
    Leave();
  }

  void CheckCounters(const ModelWorkspace* model) {
    if (model == nullptr || model->workspace == nullptr) return;
    const Workspace& workspace = *model->workspace;
    ASSERT_EQ(workspace.is_open(), model->depth > 0);
    ASSERT_EQ(workspace.generation(), model->generation);
    ASSERT_EQ(workspace.cycles(), model->generation - (model->depth > 0 ? 1 : 0));
    ASSERT_EQ(workspace.stats().failed_cycles, model->failed);
    ASSERT_EQ(workspace.bytes_this_cycle(), model->bytes_this_cycle);
    ASSERT_EQ(workspace.bytes_last_cycle(), model->bytes_last_cycle);
    if (const size_t most = workspace.config().max_size; most > 0) {
      ASSERT_LE(workspace.size(), most);
    }
    ASSERT_LE(workspace.offset(), workspace.size() + workspace.config().alignment - 1);
  }

  void CheckAll() {
    for (const ModelBuffer& buffer : buffers_) Check(buffer);
    int64_t most = allocated_;
    for (const ModelWorkspace* model : present_) {
      CheckCounters(model);
      most += model->depth > 0 ? model->on_the_way : 0;
    }
    const int64_t now = LedgerOf(MemoryKind::kAllocated) - OutsideBytes() - allocated_before_;
    ASSERT_EQ(now, std::clamp(now, allocated_, most));
  }

  std::mt19937 random_;
  int64_t operation_ = 0, refused_ = 0, cycles_ = 0, hits_ = 0, given_up_ = 0;
  int64_t ledger_before_, allocated_before_, allocated_ = 0;
  std::unique_ptr<WorkspacePool> pool_;
  std::vector<std::unique_ptr<ModelWorkspace>> workspaces_;  // also those that are gone
  std::vector<ModelWorkspace*> present_;
  std::vector<ModelBuffer> buffers_;
  std::map<std::byte*, std::byte*> live_;  // begin and end of live blocks
  Releaser releaser_;
  std::vector<std::unique_ptr<ModelFrame>> frames_;
};

TEST(WorkspaceModel, RandomOperationsAgreeWithTheModel) {
  const char* seed_text = std::getenv("TIDEPOOL_MODEL_SEED");
  const char* operations_text = std::getenv("TIDEPOOL_MODEL_OPERATIONS");
  const uint32_t seed =
      seed_text != nullptr ? static_cast<uint32_t>(std::stoul(seed_text)) : std::random_device()();
  std::printf("seed %u\n", seed);
  Model(seed).Run(operations_text != nullptr ? std::stoll(operations_text) : 400000);
}

}  // namespace
}  // namespace tidepool
