// Mirrors against a model: random reads and writes of ranges from both sides, on a device whose
// kernels and copies are delayed and reordered, so that a wait that is missing is seen as wrong bytes.
// TIDEPOOL_MODEL_SEED and TIDEPOOL_MODEL_OPERATIONS set another run.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr int kBuffers = 4;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

class MirrorModel {
 public:
  MirrorModel(uint64_t seed, int64_t operations, bool in_workspace)
      : random_(seed), operations_(operations), in_workspace_(in_workspace) {
    device_.Reset();
    device_.set_has_pinned_host(seed % 2 == 0);
    device_.set_asynchronous(seed);
    if (in_workspace_)
      workspace_ = std::make_unique<Workspace>("model", WorkspaceConfig(), kDevice);
  }
  ~MirrorModel() {
    for (Kept& kept : buffers_) kept.handle.Reset();
    scope_.reset();
    workspace_.reset();
    device_.Reset();
  }

  void Run() {
    if (in_workspace_) scope_ = std::make_unique<WorkspaceScope>(*workspace_);
    for (Kept& kept : buffers_) Renew(kept);
    for (int64_t n = 0; n < operations_ && wrong_ == 0 && !testing::Test::HasFailure(); ++n) {
      // Another cycle, which reuses the memory of this one while kernels may be using it.
      if (in_workspace_ && n % 1000 == 999) {
        for (Kept& kept : buffers_) kept.handle.Reset();
        scope_.reset();
        scope_ = std::make_unique<WorkspaceScope>(*workspace_);
        for (Kept& kept : buffers_) Renew(kept);
      }
      Step(buffers_[random_() % kBuffers]);
    }
    device_.WaitFor(device_.ComputePoint(0));
    EXPECT_EQ(wrong_, 0) << "kernels saw other bytes than were written before them";
    std::printf(
        "%lld reads, %lld writes on the host; %lld, %lld on the device; %lld copies there, "
        "%lld back\n",
        static_cast<long long>(host_reads_), static_cast<long long>(host_writes_),
        static_cast<long long>(device_reads_), static_cast<long long>(device_writes_),
        static_cast<long long>(device_.counters().copies_from_host),
        static_cast<long long>(device_.counters().copies_to_host));
  }

 private:
  static inline const Device kDevice = SimulatedDevice::kDevice;
  struct Kept {
    BufferHandle handle;
    std::vector<std::byte> expected;
    std::vector<bool> written;
  };

  void Renew(Kept& kept) {
    const size_t bytes = 1 + random_() % 700;
    kept.handle =
        BufferHandle(in_workspace_ ? AllocateHere(bytes)
                                   : NewHeapBuffer(bytes, 64, MemoryKind::kAllocated, kDevice));
    kept.handle->version = 0;
    kept.expected.assign(bytes, std::byte{0});
    kept.written.assign(bytes, false);
  }

  void PickRange(const Kept& kept, size_t* begin, size_t* end) {
    const size_t bytes = kept.expected.size();
    *begin = random_() % bytes;
    const size_t longest = random_() % 4 == 0 ? bytes : 24;
    *end = std::min(bytes, *begin + 1 + random_() % longest);
  }

  void Write(Kept& kept, size_t begin, size_t end, std::byte value) {
    std::fill(kept.expected.begin() + begin, kept.expected.begin() + end, value);
    std::fill(kept.written.begin() + begin, kept.written.begin() + end, true);
    kept.handle->version.fetch_add(1);
  }

  void Step(Kept& kept) {
    size_t begin, end;
    PickRange(kept, &begin, &end);
    const auto value = static_cast<std::byte>(random_());
    const uint64_t what = random_() % 100;
    if (what < 1) {
      Renew(kept);
    } else if (what < 2) {
      BufferMirror::Of(*kept.handle.get()).DropHostCopy();
    } else if (what < 4) {
      device_.faults().FailRequest(0);  // the next copy, if there is one
      try {
        BufferMirror::Of(*kept.handle.get()).OnHost(MirrorEvent::kHostRead, begin, end, "model");
      } catch (const Error&) {
      }
      device_.faults().Clear();
    } else if (what < 25) {
      ReadOnHost(kept, begin, end);
    } else if (what < 45) {
      const bool all = what < 30;
      std::byte* const host =
          BufferMirror::Of(*kept.handle.get())
              .OnHost(all ? MirrorEvent::kHostOverwrite : MirrorEvent::kHostWrite, begin, end,
                      "model");
      if (!all) begin += random_() % (end - begin);
      std::memset(host + begin, static_cast<int>(value), end - begin);
      Write(kept, begin, end, value);
      ++host_writes_;
    } else {
      Kernel(kept, begin, end, value, what < 72);
    }
  }

  void ReadOnHost(Kept& kept, size_t begin, size_t end) {
    const std::byte* const host =
        BufferMirror::Of(*kept.handle.get()).OnHost(MirrorEvent::kHostRead, begin, end, "model");
    for (size_t i = begin; i < end; ++i) {
      if (!kept.written[i]) continue;
      ASSERT_EQ(host[i], kept.expected[i]) << "byte " << i << " on the host";
    }
    ++host_reads_;
  }

  // Reads a range of this buffer and one of another, as operands of one call; writes to this one.
  void Kernel(Kept& kept, size_t begin, size_t end, std::byte value, bool writes) {
    Kept& other = buffers_[random_() % kBuffers];
    size_t from, to;
    PickRange(other, &from, &to);
    std::vector<BufferMirror::DeviceUse> uses;
    uses.push_back({other.handle.get(), from, to, false, "model", "X"});
    uses.push_back({kept.handle.get(), begin, end, writes, "model", "Z"});
    BufferMirror::PrepareForDevice(uses);
    const OrderedUses ordered(kDevice, 0,
                              {{other.handle.get(), false}, {kept.handle.get(), writes}});
    struct Seen {
      const std::byte* hidden;
      std::vector<std::byte> expected;
      std::vector<bool> written;
    };
    std::vector<Seen> seen;
    for (const auto& [of, b, e] : {std::tuple(&other, from, to), std::tuple(&kept, begin, end)}) {
      seen.push_back({device_.Hidden(of->handle->data + b, e - b),
                      {of->expected.begin() + b, of->expected.begin() + e},
                      {of->written.begin() + b, of->written.begin() + e}});
      ++device_reads_;
    }
    std::byte* const target = device_.Hidden(kept.handle->data + begin, end - begin);
    const size_t bytes = end - begin;
    const std::byte* const a = other.handle->data;
    const std::byte* const z = kept.handle->data;
    device_.QueueKernel({{a + from, a + to, false}, {z + begin, z + end, writes}},
                        [this, seen = std::move(seen), target, bytes, value, writes] {
                          for (const Seen& one : seen) {
                            for (size_t i = 0; i < one.expected.size(); ++i) {
                              wrong_ += one.written[i] && one.hidden[i] != one.expected[i];
                            }
                          }
                          if (writes) std::memset(target, static_cast<int>(value), bytes);
                        });
    if (!writes) return;
    Write(kept, begin, end, value);
    ++device_writes_;
  }

  SimulatedDevice& device_ = SimulatedDevice::Get();
  std::mt19937_64 random_;
  const int64_t operations_;
  const bool in_workspace_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<WorkspaceScope> scope_;
  Kept buffers_[kBuffers];
  std::atomic<int64_t> wrong_{0};
  int64_t host_reads_ = 0, host_writes_ = 0, device_reads_ = 0, device_writes_ = 0;
};

void RunModel(bool in_workspace) {
  const int64_t operations = FromEnvironment("TIDEPOOL_MODEL_OPERATIONS", 100000);
  const int64_t seed = FromEnvironment("TIDEPOOL_MODEL_SEED", 0);
  for (int64_t s = seed != 0 ? seed : 1; s <= (seed != 0 ? seed : 4); ++s) {
    std::printf("seed %lld\n", static_cast<long long>(s));
    MirrorModel model(static_cast<uint64_t>(s), operations / 4, in_workspace);
    model.Run();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MirrorModelTest, HeapBuffersAgreeWithPlainBytes) { RunModel(false); }
TEST(MirrorModelTest, WorkspaceBuffersAgreeWithPlainBytes) { RunModel(true); }

}  // namespace
}  // namespace tidepool
