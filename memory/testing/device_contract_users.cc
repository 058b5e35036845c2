// What stands on a device's memory: workspaces, rings, pools of workspaces, mirrors, budgets. Every
// byte is compared.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/mirroring/host_copies.h"
#include "tidepool/memory/testing/device_contract_check.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

WorkspaceConfig Small(WorkspaceConfig config) {
  config.prefault = false;
  config.temp_block_size = 256 * kKiB;
  return config;
}

struct Array {
  BufferHandle buffer;
  uint64_t pattern = 0;
};

// From wherever the thread is, filled by a queued copy or one that is waited for.
Array NewArray(DeviceCheck& check, size_t bytes, uint64_t pattern) {
  Array array{BufferHandle(AllocateHere(bytes)), pattern};
  const Buffer& buffer = *array.buffer.get();
  check.Expect(buffer.device == check.contract.device,
               "an array of a workspace is on another device");
  check.Expect(reinterpret_cast<uintptr_t>(buffer.data) % check.traits.alignment == 0,
               absl::StrCat("an array of a workspace is not aligned to ", check.traits.alignment));
  const Bytes sent = PatternOf(pattern, bytes);
  if (pattern % 2 == 0) {
    check.device.CopyFromHost(buffer.data, sent.data(), bytes);
  } else {
    check.device.WaitFor(check.device.QueueCopyFromHost(buffer.data, sent.data(), bytes,
                                                        check.device.ComputePoint(0)));
  }
  return array;
}

void ExpectWhole(DeviceCheck& check, const Array& array, const std::string& what) {
  check.ExpectOnDevice(array.buffer->data, PatternOf(array.pattern, array.buffer->bytes), what);
}

// The requests and releases of one kind of cycle, the same each time; the bytes are another each
// time.
void RunCycle(DeviceCheck& check, uint64_t kind, uint64_t cycle, const std::string& what) {
  std::mt19937_64 random(kind * 1000 + check.contract.seed);
  std::vector<Array> live;
  for (int i = 0; i < 24; ++i) {
    const size_t bytes = 1 + random() % (i % 6 == 0 ? 150 * kKiB : 6 * kKiB);
    live.push_back(NewArray(check, bytes, cycle * 1000 + static_cast<uint64_t>(i)));
    while (live.size() > 2 + random() % 8) {
      std::swap(live[random() % live.size()], live.back());
      ExpectWhole(check, live.back(), what);
      live.pop_back();
    }
  }
  for (const Array& array : live) ExpectWhole(check, array, what);
}

std::jthread Thread(DeviceCheck& check, std::function<void()> work) {
  return std::jthread([&check, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      check.Expect(false, absl::StrCat("a thread ended early: ", error.what()));
    }
  });
}

}  // namespace

void CheckWorkspaces(DeviceCheck& check) {
  for (const WorkspaceConfig& config :
       {WorkspaceConfig::Training(), WorkspaceConfig::Nd4j(), WorkspaceConfig()}) {
    Workspace workspace("device contract", Small(config), check.contract.device);
    // Larger kinds make pages grow, smaller ones come back.
    const uint64_t kinds[] = {0, 0, 0, 1, 1, 0, 2, 2, 0, 1, 0};
    uint64_t cycle = 0;
    for (const uint64_t kind : kinds) {
      WorkspaceScope scope(workspace);
      ++cycle;
      RunCycle(check, kind, cycle, absl::StrCat("cycle ", cycle, " of a workspace"));
    }
    if (config == WorkspaceConfig()) {
      const uint64_t misses = workspace.stats().misses;
      for (int i = 0; i < 4; ++i) {
        WorkspaceScope scope(workspace);
        RunCycle(check, 0, ++cycle, "a planned cycle of a workspace");
      }
      check.Expect(workspace.stats().misses == misses && workspace.stats().hits > 0,
                   "a cycle that was learned misses its plan");
    }
    workspace.Trim();
    WorkspaceScope scope(workspace);
    RunCycle(check, 1, ++cycle, "a cycle after Trim()");
  }
}

void CheckRings(DeviceCheck& check) {
  constexpr int kBatches = 24;
  RingWorkspace ring("device contract", Small(WorkspaceConfig::Ring(3)), check.contract.device);
  RingChannel<std::vector<Array>> channel(ring);
  std::jthread producer = Thread(check, [&] {
    try {
      for (uint64_t batch = 0; batch < kBatches; ++batch) {
        RingSlotScope slot(ring);
        std::vector<Array> arrays;
        for (uint64_t i = 0; i < 5; ++i) {
          NewArray(check, 3000 + 500 * i, 7);  // scratch
          arrays.push_back(NewArray(check, 1000 + 9000 * i + batch % 2 * 700, batch * 100 + i));
        }
        if (!channel.Push(slot.Commit(), std::move(arrays))) return;
      }
      channel.Close();
    } catch (...) {
      channel.Fail(std::current_exception());
    }
  });
  int popped = 0;
  while (std::optional<RingChannel<std::vector<Array>>::Item> batch = channel.Pop()) {
    for (const Array& array : batch->value)
      ExpectWhole(check, array, absl::StrCat("batch ", popped, " of a ring"));
    ++popped;
  }
  check.Expect(popped == kBatches,
               absl::StrCat(popped, " batches came out of a ring, expected ", kBatches));
}

void CheckPools(DeviceCheck& check) {
  WorkspacePool pool("device contract", Small(WorkspaceConfig::Inference()), check.contract.device);
  {
    std::vector<std::jthread> threads;
    for (uint64_t thread = 0; thread < 3; ++thread) {
      threads.push_back(Thread(check, [&, thread] {
        for (uint64_t cycle = 0; cycle < 8; ++cycle) {
          PooledScope scope(pool);
          RunCycle(check, (cycle + thread) % 3, thread * 100 + cycle,
                   "a cycle of a pool of workspaces");
        }
      }));
    }
  }
  check.Expect(pool.stats().cycles == 24,
               absl::StrCat(pool.stats().cycles, " cycles of a pool ended, expected 24"));
  pool.Trim();
}

void CheckMirrors(DeviceCheck& check) {
  if (check.traits.host_readable) return;
  constexpr size_t kBytes = 40 * kKiB + 5;
  const auto run = [&](Buffer& buffer) {
    Bytes model = check.NewPattern(kBytes);
    check.device.CopyFromHost(buffer.data, model.data(), kBytes);
    buffer.version = 1;
    BufferMirror& mirror = BufferMirror::Of(buffer);
    for (int i = 0; i < 40; ++i) {
      const size_t begin = check.Below(kBytes), end = begin + 1 + check.Below(kBytes - begin);
      const Bytes next = check.NewPattern(end - begin);
      const auto before = Bytes(model.begin() + begin, model.begin() + end);
      const bool writes = check.Below(2) == 0;
      if (i % 2 == 0) {
        std::byte* const host =
            mirror.OnHost(writes ? MirrorEvent::kHostWrite : MirrorEvent::kHostRead, begin, end,
                          "device contract");
        check.ExpectSame(Bytes(host + begin, host + end), before, "the host copy of an array");
        if (writes) std::copy(next.begin(), next.end(), host + begin);
      } else {
        const BufferMirror::DeviceUse use{&buffer,           begin, end, writes, "device contract",
                                          writes ? "Z" : "X"};
        BufferMirror::PrepareForDevice(absl::MakeConstSpan(&use, 1));
        check.ExpectOnDevice(buffer.data + begin, before, "an array with a host copy");
        if (writes) check.device.CopyFromHost(buffer.data + begin, next.data(), next.size());
      }
      if (writes) {
        std::copy(next.begin(), next.end(), model.begin() + begin);
        ++buffer.version;
      }
    }
    mirror.DropHostCopy();
    check.ExpectOnDevice(buffer.data, model, "an array after its host copy");
  };
  run(*BufferHandle(
           NewHeapBuffer(kBytes, kHeapAlignment, MemoryKind::kAllocated, check.contract.device))
           .get());
  Workspace workspace("device contract", Small(WorkspaceConfig::Training()), check.contract.device);
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    const BufferHandle other(AllocateHere(1000)), buffer(AllocateHere(kBytes));
    run(*buffer.get());
  }
  HostCopies::Global().Trim();
}

void CheckBudgets(DeviceCheck& check) {
  MemoryBudget& budget = MemoryBudget::Global();
  const Device device = check.contract.device;
  const int64_t before = budget.Of(device).taken_bytes;
  const size_t room = std::max(8 * kMiB, 4 * check.traits.granularity);
  {
    Workspace workspace("device contract", Small(WorkspaceConfig()), device);
    budget.SetDeviceLimit(device, before + static_cast<int64_t>(room));
    for (uint64_t cycle = 0; cycle < 4; ++cycle) {
      try {
        WorkspaceScope scope(workspace);
        const Array kept = NewArray(check, 20000, cycle);
        bool refused = false;
        try {
          NewArray(check, 2 * room, 1);
        } catch (const OutOfMemoryError&) {
          refused = true;
        }
        check.Expect(refused, "a limit of the device's memory does not limit a workspace");
        ExpectWhole(check, kept, "an array beside a refusal");
        RunCycle(check, 0, cycle, "a cycle under a limit");
      } catch (...) {
        budget.SetDeviceLimit(device, MemoryBudget::kUnlimited);
        throw;
      }
    }
    const int64_t taken = budget.Of(device).taken_bytes;
    check.Expect(taken <= before + static_cast<int64_t>(room),
                 "more is taken than the limit of the device's memory");
    budget.SetDeviceLimit(device, MemoryBudget::kUnlimited);
    WorkspaceScope scope(workspace);
    ExpectWhole(check, NewArray(check, 2 * room, 3), "an array beyond the former limit");
  }
  const int64_t left = budget.Of(device).taken_bytes - before;
  check.Expect(left <= 0, absl::StrCat(left, " bytes are taken off the budget still"));
}

}  // namespace tidepool
