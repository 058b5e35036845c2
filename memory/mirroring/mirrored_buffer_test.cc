#include "tidepool/memory/mirroring/mirrored_buffer.h"

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

constexpr Device kDevice = SimulatedDevice::kDevice;

BufferHandle NewOnDevice(size_t bytes) {
  return BufferHandle(NewHeapBuffer(bytes, 64, MemoryKind::kAllocated, kDevice));
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

int64_t HostBytes() { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; }

class MirroredBufferTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(MirroredBufferTest, BytesMoveOnlyWhenTheSideAskedForIsStale) {
  MirroredBuffer mirror(NewOnDevice(1000));
  EXPECT_FALSE(mirror.has_host_copy());
  std::memset(mirror.OverwriteOnHost(), 3, 1000);
  EXPECT_EQ(mirror.counters().copies_to_host, 0);  // all of it is new
  EXPECT_FALSE(mirror.device_is_current());
  mirror.ReadOnDevice();
  mirror.ReadOnDevice();
  EXPECT_EQ(mirror.counters().copies_to_device, 1);
  EXPECT_EQ(mirror.ReadOnHost()[999], std::byte{3});
  EXPECT_EQ(mirror.counters().copies_to_host, 0);
  device_.Fill(mirror.WriteOnDevice(), std::byte{4}, 1000);
  EXPECT_FALSE(mirror.host_is_current());
  EXPECT_EQ(mirror.ReadOnHost()[999], std::byte{4});
  EXPECT_EQ(mirror.ReadOnHost()[0], std::byte{4});
  EXPECT_EQ(mirror.counters().copies_to_host, 1);
  EXPECT_EQ(mirror.counters().bytes_to_host, 1000);
  std::memset(mirror.OverwriteOnHost(), 5, 1000);
  device_.Fill(mirror.OverwriteOnDevice(), std::byte{6}, 1000);
  EXPECT_EQ(mirror.counters().copies_to_device, 1);
  EXPECT_EQ(mirror.ReadOnHost()[1], std::byte{6});
}

// Operators write through the buffer and raise its version.
TEST_F(MirroredBufferTest, WritesByOthersAreSeenByTheVersion) {
  BufferHandle buffer = NewOnDevice(100);
  device_.Fill(buffer->data, std::byte{1}, 100);
  MirroredBuffer mirror(buffer);
  EXPECT_EQ(mirror.ReadOnHost()[0], std::byte{1});
  device_.Fill(buffer->data, std::byte{2}, 100);
  buffer->version.fetch_add(1);
  EXPECT_FALSE(mirror.host_is_current());
  EXPECT_EQ(mirror.ReadOnHost()[0], std::byte{2});
  mirror.WriteOnHost()[0] = std::byte{9};
  buffer->version.fetch_add(1);
  EXPECT_THAT(MessageOf([&] { mirror.ReadOnHost(); }),
              HasSubstr("of 100 bytes on simulated:0 was written there and on the host"));
  EXPECT_THAT(MessageOf([&] { mirror.ReadOnDevice(); }), HasSubstr("written there and on the host"));
}

// Caches that are keyed by the version must notice every write, whichever side it is on.
TEST_F(MirroredBufferTest, EveryWriteRaisesTheVersion) {
  for (bool on_device : {false, true}) {
    MirroredBuffer mirror(on_device ? NewOnDevice(100) : BufferHandle(NewHeapBuffer(100)));
    uint32_t version = mirror.buffer()->version;
    for (int i = 0; i < 3; ++i) {
      mirror.OverwriteOnHost();
      mirror.WriteOnHost();
      mirror.OverwriteOnDevice();
      mirror.WriteOnDevice();
      version += 4;
      EXPECT_EQ(mirror.buffer()->version, version);
      mirror.ReadOnHost();
      mirror.ReadOnDevice();
      EXPECT_EQ(mirror.buffer()->version, version);
    }
  }
}

TEST_F(MirroredBufferTest, HostMemoryIsBothCopies) {
  MirroredBuffer mirror(BufferHandle(NewHeapBuffer(100)));
  std::byte* const host = mirror.WriteOnHost();
  EXPECT_EQ(host, mirror.ReadOnDevice());
  EXPECT_EQ(host, mirror.ReadOnHost());
  EXPECT_FALSE(mirror.has_host_copy());
  EXPECT_TRUE(mirror.device_is_current());
  EXPECT_EQ(mirror.counters().copies_to_device + mirror.counters().copies_to_host, 0);
}

TEST_F(MirroredBufferTest, TheHostCopyIsPinnedCountedAndGivenBack) {
  device_.set_has_pinned_host(true);
  const int64_t before = HostBytes();
  {
    MirroredBuffer mirror(NewOnDevice(5000));
    EXPECT_EQ(HostBytes(), before);
    mirror.WriteOnHost()[4999] = std::byte{8};
    EXPECT_EQ(HostBytes(), before + 5000);
    EXPECT_EQ(device_.pinned_bytes(), 5000);
    mirror.DropHostCopy();
    EXPECT_EQ(HostBytes(), before);
    EXPECT_EQ(device_.pinned_bytes(), 0);
    EXPECT_EQ(mirror.ReadOnHost()[4999], std::byte{8});  // it was brought over first
  }
  EXPECT_EQ(HostBytes(), before);
  EXPECT_EQ(device_.used_bytes(), 0);
}

TEST_F(MirroredBufferTest, DisabledMirroringIsAnErrorThatSaysSo) {
  WorkspaceConfig config;
  config.policy_mirroring = MirroringPolicy::kDisabled;
  Workspace workspace("w", config, kDevice);
  WorkspaceScope scope(workspace);
  MirroredBuffer mirror{BufferHandle(AllocateHere(100))};
  device_.Fill(mirror.OverwriteOnDevice(), std::byte{1}, 100);
  for (const std::function<void()>& access :
       {std::function<void()>([&] { mirror.ReadOnHost(); }),
        std::function<void()>([&] { mirror.WriteOnHost(); }),
        std::function<void()>([&] { mirror.OverwriteOnHost(); })}) {
    EXPECT_THAT(MessageOf(access),
                HasSubstr("host access to a buffer of 100 bytes: workspace [w] on simulated:0 is "
                          "device memory only (policy_mirroring kDisabled)"));
  }
  mirror.ReadOnDevice();
}

TEST_F(MirroredBufferTest, ABufferOfAnEndedCycleIsRefused) {
  Workspace workspace("w", {}, kDevice);
  std::unique_ptr<MirroredBuffer> mirror;
  {
    WorkspaceScope scope(workspace);
    mirror = std::make_unique<MirroredBuffer>(BufferHandle(AllocateHere(100)));
    mirror->OverwriteOnHost();
  }
  EXPECT_THAT(MessageOf([&] { mirror->ReadOnHost(); }),
              HasSubstr("leaked workspace pointer from workspace [w]"));
  EXPECT_THAT(MessageOf([&] { mirror->ReadOnDevice(); }), HasSubstr("leaked workspace pointer"));
  mirror->buffer()->Close();
  EXPECT_THAT(MessageOf([&] { mirror->ReadOnDevice(); }), HasSubstr("was closed"));
}

// Random reads and writes on both sides against a plain array, with faults in between: the bytes
// are right, and each copy is one the model finds necessary.
TEST_F(MirroredBufferTest, RandomAccessesAgreeWithAModel) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    constexpr size_t kBytes = 4096;
    MirroredBuffer mirror(NewOnDevice(kBytes));
    device_.Fill(mirror.OverwriteOnDevice(), std::byte{0}, kBytes);
    std::vector<std::byte> expected(kBytes), seen(kBytes);
    bool host_current = false, device_current = true;
    int64_t to_host = 0, to_device = 0;
    for (int step = 0; step < 3000; ++step) {
      const size_t at = random() % kBytes;
      const std::byte value{static_cast<unsigned char>(random())};
      const int operation = static_cast<int>(random() % 7);
      const bool needs_copy = (operation < 2 && !host_current) ||
                              ((operation == 3 || operation == 4 || operation == 6) && !device_current);
      if (needs_copy && random() % 4 == 0) {
        const bool device_was = mirror.device_is_current(), host_was = mirror.host_is_current();
        device_.faults().FailRequest(0);
        EXPECT_THROW(
            {
              if (operation < 2) mirror.ReadOnHost();
              if (operation >= 3) mirror.ReadOnDevice();
            },
            Error);
        device_.faults().Clear();
        ASSERT_EQ(mirror.device_is_current(), device_was);
        ASSERT_EQ(mirror.host_is_current(), host_was);
      }
      to_host += needs_copy && operation < 2;
      to_device += needs_copy && operation >= 3;
      switch (operation) {
        case 0:
          ASSERT_EQ(std::memcmp(mirror.ReadOnHost(), expected.data(), kBytes), 0);
          host_current = true;
          break;
        case 1:
          mirror.WriteOnHost()[at] = expected[at] = value;
          host_current = true, device_current = false;
          break;
        case 2:
          std::memset(mirror.OverwriteOnHost(), static_cast<int>(value), kBytes);
          expected.assign(kBytes, value);
          host_current = true, device_current = false;
          break;
        case 3:
          device_.CopyToHost(seen.data(), mirror.ReadOnDevice(), kBytes);
          ASSERT_EQ(seen, expected);
          device_current = true;
          break;
        case 4:
          device_.Fill(mirror.WriteOnDevice() + at, value, 1);
          expected[at] = value;
          host_current = false, device_current = true;
          break;
        case 5:
          device_.Fill(mirror.OverwriteOnDevice(), value, kBytes);
          expected.assign(kBytes, value);
          host_current = false, device_current = true;
          break;
        case 6:
          mirror.DropHostCopy();
          host_current = false, device_current = true;
          break;
      }
      ASSERT_EQ(mirror.host_is_current(), host_current);
      ASSERT_EQ(mirror.device_is_current(), device_current);
      ASSERT_EQ(mirror.counters().copies_to_host, to_host);
      ASSERT_EQ(mirror.counters().copies_to_device, to_device);
    }
  }
}

}  // namespace
}  // namespace tidepool
