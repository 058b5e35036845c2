// Copies between two devices whose work is delayed and reordered, peer to peer and staged, and a model of arrays that go
// to and fro between them. Work that would disturb other work, on whichever device, ends the test.
// TIDEPOOL_MODEL_SEED and TIDEPOOL_MODEL_OPERATIONS set another run of the model.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

constexpr int kSeeds = 24;
const Device kDevices[] = {{DeviceType::Named("simulated"), 0},
                           {DeviceType::Named("simulated"), 1}};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

SimulatedDevice& DeviceOf(int index) { return SimulatedDevice::Get(index); }

void Reset() {
  for (int i = 0; i < 2; ++i) DeviceOf(i).Reset();
  SimulatedDevice::set_has_peers(false);
  ForgetDeviceCopiesForTesting();
}

// Other ways to copy and to keep memory, by the seed.
void Restart(uint64_t seed, bool peers) {
  Reset();
  SimulatedDevice::set_has_peers(peers);
  for (int i = 0; i < 2; ++i) {
    DeviceOf(i).set_has_pinned_host(seed % 3 != 0);
    if (seed % 4 != 0) DeviceOf(i).set_keeps_blocks(size_t{1} << 20);
    DeviceOf(i).set_asynchronous(seed + static_cast<uint64_t>(i));
  }
}

NDArray On(int device, double value, int64_t elements = 1000) {
  return Full({elements}, value, DType::kFloat32, Place::On(kDevices[device]));
}
std::vector<float> Same(float value, size_t elements = 1000) {
  return std::vector<float>(elements, value);
}

class DeviceCopiesTest : public testing::TestWithParam<bool> {
 protected:
  void TearDown() override { Reset(); }
  bool peers() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceCopiesTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "PeerToPeer" : "Staged"; });

TEST_P(DeviceCopiesTest, TheWayIsDecidedOnceAndSeen) {
  Restart(1, peers());
  const NDArray x = On(0, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(x.To(kDevices[1]).ToVector<float>(), Same(3));
    SimulatedDevice::set_has_peers(!peers());  // comes too late
  }
  const DeviceCopyCounters way = DeviceCopiesBetween(kDevices[0], kDevices[1]);
  EXPECT_TRUE(way.decided);
  EXPECT_EQ(way.why_staged, peers() ? "" : "simulated devices were told to have no peers");
  EXPECT_EQ(way.copies, 3);
  EXPECT_EQ(way.bytes, 12000);
  EXPECT_EQ(way.pieces, peers() ? 0 : 3);
  EXPECT_EQ(DeviceOf(0).counters().copies_to_peers, peers() ? 3 : 0);
  EXPECT_FALSE(DeviceCopiesBetween(kDevices[1], kDevices[0]).decided);
  EXPECT_THAT(DescribeDeviceCopies(),
              testing::StartsWith(
                  peers() ? "simulated:0 to simulated:1: peer to peer, 3 copies, 12000 bytes"
                          : "simulated:0 to simulated:1: staged (simulated devices were told"));
}

// Nor for what the other device's queue has to do, where the copy is the first use of its memory.
TEST_P(DeviceCopiesTest, NobodyWaitsForMoreThanTheBytes) {
  int source_begun = 0, target_begun = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Restart(4 * seed + 1, peers());
    const DeviceQueue side = DeviceQueue::New(kDevices[0]);
    std::atomic<bool> on_source = false, on_target = false;
    NDArray x, there;
    {
      const QueueScope scope(side);
      x = On(0, 5);
      DeviceOf(0).QueueKernel({}, [&] { on_source = true; });  // in the first queue
      DeviceOf(1).QueueKernel({}, [&] { on_target = true; });
      there = x.To(kDevices[1]);
    }
    source_begun += on_source;
    target_begun += on_target;
    EXPECT_EQ(there.ToVector<float>(), Same(5));
    DeviceOf(0).WaitFor(DeviceOf(0).ComputePoint(0));
  }
  EXPECT_LT(source_begun, kSeeds * 3 / 4);
  EXPECT_LT(target_begun, kSeeds * 3 / 4);
}

TEST_P(DeviceCopiesTest, TheHostWaitsForStagedCopiesOnly) {
  int written = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Restart(seed, peers());
    NDArray x = On(0, 5);
    std::atomic<bool> begun = false;
    DeviceOf(0).QueueKernel({}, [&] { begun = true; });  // before the copy, in its queue
    const NDArray there = x.To(kDevices[1]);
    written += begun;
    EXPECT_EQ(there.ToVector<float>(), Same(5));
  }
  if (peers()) {
    EXPECT_LT(written, kSeeds * 3 / 4);
  } else {
    EXPECT_EQ(written, kSeeds);
  }
}

// The source is written, and its memory used again, while the copy may be under way; so is the target.
TEST_P(DeviceCopiesTest, LaterUsesComeBehindTheCopy) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Restart(seed, peers());
    const DeviceQueue sides[] = {DeviceQueue::New(kDevices[0]), DeviceQueue::New(kDevices[1])};
    std::vector<NDArray> there;
    NDArray x = On(0, 1);
    for (int i = 0; i < 4; ++i) {
      there.push_back(x.To(kDevices[1]));
      std::optional<QueueScope> scope;
      if (i % 2 == 0) scope.emplace(sides[0]);
      AddInto(x, x, x);
      x = NDArray();
      x = On(0, 2 << i);
    }
    for (size_t i = 0; i < there.size(); ++i) {
      const QueueScope scope(sides[1]);
      AddInto(there[i], there[i], there[i]);
    }
    for (size_t i = 0; i < there.size(); ++i) {
      EXPECT_EQ(there[i].ToVector<float>(), Same(2.0f * static_cast<float>(1 << i))) << seed;
    }
  }
}

TEST_P(DeviceCopiesTest, LargeArraysGoInPieces) {
  constexpr int64_t kElements = 2'700'000;  // 10.8 MB
  for (uint64_t seed = 1; seed < 5; ++seed) {
    Restart(seed, peers());
    for (int i = 0; i < 2; ++i) DeviceOf(i).set_has_pinned_host(seed % 2 == 0);
    NDArray x = On(0, 0, kElements);
    x.mutable_data<float>()[kElements - 1] = 7;
    x.mutable_data<float>()[(kStagedBytes / 4)] = 8;
    const NDArray there = x.To(kDevices[1]);
    EXPECT_EQ(DeviceCopiesBetween(kDevices[0], kDevices[1]).pieces, peers() ? 0 : 3);
    EXPECT_EQ(there.At<float>({kElements - 1}), 7);
    EXPECT_EQ(there.At<float>({kStagedBytes / 4}), 8);
    EXPECT_EQ(there.At<float>({kElements / 2}), 0);
  }
}

// Of either device where one has some; pageable memory is not asked for.
TEST(StagedCopies, GoThroughPageLockedMemoryAlone) {
  for (const bool of_source : {false, true}) {
    for (const bool of_target : {false, true}) {
      Restart(1, /*peers=*/false);
      DeviceOf(0).set_has_pinned_host(of_source);
      DeviceOf(1).set_has_pinned_host(of_target);
      const NDArray x = On(0, 3);
      NDArray there = On(1, 0);
      FailingProvider host(Host());
      CopyInto(x, there);
      if (of_source || of_target) {
        EXPECT_EQ(host.faults().requests(), 0) << of_source << of_target;
      } else {
        EXPECT_EQ(host.faults().requests(), 1);  // of neither: ordinary memory serves both
      }
      EXPECT_EQ(DeviceCopiesBetween(kDevices[0], kDevices[1]).pieces, 1);
      EXPECT_EQ(there.ToVector<float>(), Same(3));
    }
  }
  Reset();
}

TEST_P(DeviceCopiesTest, EveryRefusalIsAnErrorAndTheNextCopyIsRight) {
  int refused = 0;
  for (int failing = 0; failing < 2; ++failing) {
    for (int64_t n = 0; n < 40; ++n) {
      Restart(static_cast<uint64_t>(n), peers());
      const NDArray x = On(0, 4);
      const NDArray again = On(0, 6);
      DeviceOf(failing).faults().FailRequest(n);
      try {
        const NDArray there = x.To(kDevices[1]);
        const std::vector<float> seen = there.ToVector<float>();
        EXPECT_EQ(seen, Same(4));
      } catch (const Error&) {
        ++refused;
      }
      const bool happened = DeviceOf(failing).faults().failed() > 0;
      DeviceOf(failing).faults().Clear();
      EXPECT_EQ(again.To(kDevices[1]).ToVector<float>(), Same(6));
      EXPECT_EQ(x.ToVector<float>(), Same(4));
      if (!happened) break;
    }
  }
  EXPECT_GE(refused, 4);
}

// Tensors of files, into arrays that have a copy on the host, and into parts of them.
TEST_P(DeviceCopiesTest, TensorsAreReadAsAnyOtherWrite) {
  std::vector<float> values(3'000'000);  // some pieces
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  const std::string path = testing::TempDir() + "/device.safetensors";
  WriteSafetensorsArrays(path, {{"x", FromValues(absl::MakeConstSpan(values), {3'000'000})}});
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Restart(seed, peers());
    NDArray x = On(0, 5, 3'000'000), larger = On(0, 9, 3'000'002);
    if (seed % 2 == 0) x.mutable_data<float>()[7] = 8;  // newer on the host
    EXPECT_EQ(x.data<float>()[8], 5);
    larger.data<float>();
    ReadSafetensor(reader, reader.Find("x"), x);
    NDArray part = larger.Slice(0, 1, 3'000'001);
    ReadSafetensor(reader, reader.Find("x"), part);
    EXPECT_EQ(x.data<float>()[2'999'999], 999);
    EXPECT_EQ(Add(x, x).At<float>({2'999'998}), 2 * 998);
    EXPECT_EQ(x.ToVector<float>(), values);
    EXPECT_EQ(larger.At<float>({0}), 9);
    EXPECT_EQ(larger.data<float>()[1001], 0);
    EXPECT_EQ(larger.At<float>({3'000'000}), 999);
    EXPECT_EQ(larger.At<float>({3'000'001}), 9);
    {
      const HostView<float> view(x);
      EXPECT_THROW(ReadSafetensor(reader, reader.Find("x"), x), Error);
    }
  }
}

// ---- the model ------------------------------------------------------------------------------------

// Arrays of both devices, in random queues, in cycles of workspaces of both, and on the heap; copied to and fro.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    for (int device = 0; device < 2; ++device) {
      queues_[device] = {DeviceQueue::First(kDevices[device])};
      while (queues_[device].size() < 3)
        queues_[device].push_back(DeviceQueue::New(kDevices[device]));
    }
  }

  void Run(int64_t operations) {
    for (int64_t done = 0; done < operations && !testing::Test::HasFailure();) {
      // Each cycle in queues of its own, of both devices or one.
      const QueueScope first(Any(queues_[0])), second(Any(queues_[1]));
      std::optional<WorkspaceScope> scopes[2];
      for (auto& scope : scopes) {
        if (random_() % 4 != 0) scope.emplace(workspaces_[&scope - scopes]);
      }
      std::vector<Kept> arrays(kArrays);
      for (Kept& kept : arrays) Renew(kept);
      for (int64_t n = random_() % 50; n > 0; --n, ++done) Step(arrays);
      if (random_() % 2 == 0) {
        Kept& kept = Any(arrays);
        heap_.push_back({kept.array.Detach(), kept.values});
      }
      if (heap_.size() > 4)
        heap_.erase(heap_.begin() + static_cast<int64_t>(random_() % heap_.size()));
    }
    for (const Kept& kept : heap_) EXPECT_EQ(kept.array.ToVector<float>(), kept.values);
  }

 private:
  static constexpr int kArrays = 6;
  static constexpr int64_t kElements[] = {16, 1000, 5000};
  struct Kept {
    NDArray array;
    std::vector<float> values;
  };

  template <typename T>
  T& Any(std::vector<T>& of) {
    return of[random_() % of.size()];
  }
  Place AnyPlace(Device device) {
    return random_() % 3 == 0 ? Place::On(device) : Place::CurrentOn(device);
  }

  void Renew(Kept& kept) {
    const auto value = static_cast<float>(random_() % 100);
    kept.array =
        Full({kElements[random_() % 3]}, value, DType::kFloat32, AnyPlace(kDevices[random_() % 2]));
    kept.values.assign(static_cast<size_t>(kept.array.NumElements()), value);
  }

  void Step(std::vector<Kept>& arrays) {
    const QueueScope first(Any(queues_[0])), second(Any(queues_[1]));
    Kept& kept = Any(arrays);
    Kept& other = !heap_.empty() && random_() % 4 == 0 ? Any(heap_) : Any(arrays);
    switch (random_() % 12) {
      case 0:
        return Renew(kept);
      case 1: {  // on the host, to the device and back
        float* const bytes = kept.array.mutable_data<float>();
        for (size_t i = 0; i < kept.values.size(); ++i) {
          bytes[i] = kept.values[i] = static_cast<float>(random_() % 100);
        }
        return;
      }
      case 2:
        EXPECT_EQ(kept.array.ToVector<float>(), kept.values);
        return;
      case 3:
        kept.array.Close();
        return Renew(kept);
      case 4:
      case 5:
      case 6: {  // to either device
        const Device to = kDevices[random_() % 4 == 0 ? other.array.device().index
                                                      : 1 - other.array.device().index];
        kept = {other.array.CopyTo(AnyPlace(to)), other.values};
        return;
      }
      default:
        break;
    }
    if (kept.values.size() != other.values.size()) return;
    std::vector<float> sum(kept.values.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = kept.values[i] + other.values[i];
      if (sum[i] > 1e6f) return Renew(kept);  // stays a whole number
    }
    if (&kept == &other || kept.array.buffer().get() == other.array.buffer().get()) return;
    const NDArray there = other.array.To(kept.array.device());
    if (random_() % 2 == 0) {
      AddInto(kept.array, there, kept.array);
      kept.values = sum;
      for (const Kept& of : arrays) {
        if (&of != &kept && of.array.buffer().get() == kept.array.buffer().get())
          return Renew(kept);
      }
    } else {
      kept = {Add(kept.array, there), sum};
    }
  }

  std::mt19937_64 random_;
  std::vector<DeviceQueue> queues_[2];
  Workspace workspaces_[2] = {Workspace("a", WorkspaceConfig::Training(), kDevices[0]),
                              Workspace("b", WorkspaceConfig::Training(), kDevices[1])};
  std::vector<Kept> heap_;
};

TEST_P(DeviceCopiesTest, RandomArraysOfTwoDevicesInRandomQueues) {
  const auto first = static_cast<uint64_t>(FromEnvironment("TIDEPOOL_MODEL_SEED", 1));
  const int64_t operations = FromEnvironment("TIDEPOOL_MODEL_OPERATIONS", 700);
  for (uint64_t seed = first; seed < first + 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Restart(seed, peers());
    Model(seed).Run(operations);
  }
}

}  // namespace
}  // namespace tidepool
