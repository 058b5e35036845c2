#include "tidepool/memory/mirroring/buffer_mirror.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/host_copies.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;
constexpr MirrorEvent kRead = MirrorEvent::kHostRead, kWrite = MirrorEvent::kHostWrite,
                      kOverwrite = MirrorEvent::kHostOverwrite;

// Of one value, as a kernel would have written it.
BufferHandle NewOnDevice(size_t bytes, int value = 0) {
  BufferHandle buffer(NewHeapBuffer(bytes, 64, MemoryKind::kAllocated, kDevice));
  SimulatedDevice::Get().Fill(buffer->data, static_cast<std::byte>(value), bytes);
  buffer->version = 1;
  return buffer;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

int64_t HostBytes() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated); }

void UseOnDevice(const BufferHandle& buffer, bool writes, size_t begin, size_t end) {
  const BufferMirror::DeviceUse use = {buffer.get(), begin, end, writes, "add", writes ? "Z" : "X"};
  BufferMirror::PrepareForDevice(absl::MakeConstSpan(&use, 1));
}

std::byte OnDevice(const BufferHandle& buffer, size_t at) {
  std::byte byte;
  SimulatedDevice::Get().CopyToHost(&byte, buffer->data + at, 1);
  return byte;
}

class BufferMirrorTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(BufferMirrorTest, BytesMoveOnceAndOnlyWhatIsStale) {
  const BufferHandle buffer = NewOnDevice(1000, 3);
  EXPECT_EQ(BufferMirror::Find(*buffer.get()), nullptr);
  BufferMirror& mirror = BufferMirror::Of(*buffer.get());
  EXPECT_EQ(&BufferMirror::Of(*buffer.get()), &mirror);
  EXPECT_FALSE(mirror.has_host_copy());
  EXPECT_EQ(mirror.OnHost(kRead, 100, 200, "test")[150], std::byte{3});
  EXPECT_EQ(device_.counters().bytes_to_host, 100);
  mirror.OnHost(kRead, 100, 200, "test");
  EXPECT_EQ(device_.counters().bytes_to_host, 100);
  mirror.OnHost(kWrite, 150, 300, "test")[299] = std::byte{9};
  EXPECT_EQ(device_.counters().bytes_to_host, 200);
  UseOnDevice(buffer, false, 0, 1000);
  EXPECT_EQ(device_.counters().bytes_from_host, 150);
  EXPECT_EQ(OnDevice(buffer, 299), std::byte{9});
  UseOnDevice(buffer, true, 0, 10);
  EXPECT_EQ(device_.counters().copies_from_host, 1);
  EXPECT_FALSE(mirror.IsFreshOnHost(9, 10));
  EXPECT_FALSE(mirror.IsFreshOnHost(10, 100));  // never had
  EXPECT_TRUE(mirror.IsFreshOnHost(100, 300));
}

TEST_F(BufferMirrorTest, NothingIsCopiedOfWhatNobodyHasWrittenOrWillBeOverwritten) {
  const BufferHandle buffer(NewHeapBuffer(1000, 64, MemoryKind::kAllocated, kDevice));
  buffer->version = 0;
  std::memset(BufferMirror::Of(*buffer.get()).OnHost(kWrite, 0, 500, "test"), 1, 500);
  UseOnDevice(buffer, true, 0, 1000);
  EXPECT_EQ(device_.counters().bytes_to_host, 0);
  EXPECT_EQ(device_.counters().bytes_from_host, 500);
  BufferMirror::Of(*buffer.get()).OnHost(kOverwrite, 0, 1000, "test");
  EXPECT_EQ(device_.counters().bytes_to_host, 0);
}

TEST_F(BufferMirrorTest, TheHostCopyIsPinnedCountedAndGoesWithTheBuffer) {
  device_.set_has_pinned_host(true);
  const int64_t before = HostBytes();
  BufferHandle buffer = NewOnDevice(5000, 8);
  BufferMirror& mirror = BufferMirror::Of(*buffer.get());
  EXPECT_EQ(HostBytes(), before);
  mirror.OnHost(kWrite, 4000, 5000, "test")[4999] = std::byte{7};
  EXPECT_EQ(HostBytes(), before + 5000);
  EXPECT_EQ(device_.pinned_bytes(), 5000);
  mirror.DropHostCopy();
  EXPECT_EQ(HostBytes(), before);
  EXPECT_EQ(OnDevice(buffer, 4999), std::byte{7});  // it was brought over first
  EXPECT_EQ(mirror.OnHost(kRead, 0, 5000, "test")[4999], std::byte{7});
  const BufferHandle other = buffer;
  buffer->Close();
  EXPECT_EQ(HostBytes(), before);
  EXPECT_EQ(device_.pinned_bytes(), 5000);  // kept for the next one
  HostCopies::Global().Trim();
  EXPECT_EQ(device_.pinned_bytes(), 0);
  EXPECT_EQ(device_.used_bytes(), 0);
}

TEST_F(BufferMirrorTest, ViewsLockTheirRange) {
  const BufferHandle buffer = NewOnDevice(100, 1);
  BufferMirror& mirror = BufferMirror::Of(*buffer.get());
  MirrorLock lock{20, 40, true, true, "HostView of [5] f32", nullptr};
  mirror.OnHost(kWrite, 20, 40, "test", &lock);
  for (bool writes : {false, true}) {
    EXPECT_THAT(MessageOf([&] { UseOnDevice(buffer, writes, 30, 50); }),
                HasSubstr(std::string("Op [add] ") + (writes ? "Z" : "X") +
                          " argument (bytes 30 to 50 of a buffer on simulated:0) is in use by a "
                          "mutable HostView of [5] f32 (bytes 20 to 40), which must end first"));
  }
  UseOnDevice(buffer, true, 40, 100);
  EXPECT_THAT(MessageOf([&] { mirror.OnHost(kRead, 0, 21, "data"); }), HasSubstr("Op [data]"));
  EXPECT_THAT(MessageOf([&] { mirror.DropHostCopy(); }), HasSubstr("must end first"));
  mirror.EndView(&lock);
  UseOnDevice(buffer, true, 0, 100);

  MirrorLock reading{0, 100, true, false, "HostView", nullptr};
  mirror.OnHost(kRead, 0, 100, "test", &reading);
  UseOnDevice(buffer, false, 0, 100);
  mirror.OnHost(kRead, 0, 100, "test");
  EXPECT_THAT(MessageOf([&] { UseOnDevice(buffer, true, 99, 100); }), HasSubstr("in use"));
  MirrorLock device{0, 100, false, true, "DeviceView", nullptr};
  EXPECT_THAT(MessageOf([&] { mirror.LockOnDevice(&device, "device_view"); }),
              HasSubstr("in use by a HostView"));
  mirror.EndView(&reading);
  mirror.LockOnDevice(&device, "device_view");
  EXPECT_THAT(MessageOf([&] { mirror.OnHost(kRead, 0, 1, "data"); }),
              HasSubstr("in use by a mutable DeviceView"));
  mirror.EndView(&device);
}

// A view's memory is there until the view ends, whatever becomes of the buffer.
TEST_F(BufferMirrorTest, AViewKeepsTheHostCopyOfAClosedBuffer) {
  const int64_t before = HostBytes();
  const BufferHandle buffer = NewOnDevice(100, 1);
  BufferMirror& mirror = BufferMirror::Of(*buffer.get());
  MirrorLock lock{0, 100, true, true, "HostView", nullptr};
  std::byte* const bytes = mirror.OnHost(kWrite, 0, 100, "test", &lock);
  buffer->Close();
  bytes[99] = std::byte{5};
  EXPECT_EQ(HostBytes(), before + 100);
  mirror.EndView(&lock);
  EXPECT_EQ(HostBytes(), before);
}

TEST_F(BufferMirrorTest, DisabledMirroringIsAnErrorThatSaysSo) {
  WorkspaceConfig config;
  config.policy_mirroring = MirroringPolicy::kDisabled;
  Workspace workspace("w", config, kDevice);
  WorkspaceScope scope(workspace);
  const BufferHandle buffer{AllocateHere(100)};
  EXPECT_THAT(MessageOf([&] { BufferMirror::Of(*buffer.get()).OnHost(kRead, 0, 100, "data"); }),
              HasSubstr("Op [data]: host access to a buffer of 100 bytes: workspace [w] on "
                        "simulated:0 is device memory only (policy_mirroring kDisabled)"));
  UseOnDevice(buffer, true, 0, 100);
}

TEST_F(BufferMirrorTest, CopiesAreCountedByDeviceAndWorkspace) {
  const MirrorCounters before = MirrorCountersOf(kDevice), total = TotalMirrorCounters();
  Workspace workspace("w", {}, kDevice);
  {
    WorkspaceScope scope(workspace);
    const BufferHandle buffer{AllocateHere(100)};
    buffer->version = 1;
    BufferMirror::Of(*buffer.get()).OnHost(kWrite, 0, 60, "test");
    UseOnDevice(buffer, false, 0, 100);
  }
  EXPECT_EQ(workspace.stats().mirror_copies_to_host, 1);
  EXPECT_EQ(workspace.stats().mirror_bytes_to_host, 60);
  EXPECT_EQ(workspace.stats().mirror_copies_to_device, 1);
  EXPECT_EQ(workspace.stats().mirror_bytes_to_device, 60);
  EXPECT_EQ(MirrorCountersOf(kDevice).bytes_to_device, before.bytes_to_device + 60);
  EXPECT_EQ(TotalMirrorCounters().copies_to_host, total.copies_to_host + 1);
  EXPECT_THAT(DescribeMirrorCounters(), HasSubstr("simulated:0: "));
}

TEST_F(BufferMirrorTest, CopiesThatWereNotNeededAreCounted) {
  const BufferHandle buffer{NewHeapBuffer(100, 64, MemoryKind::kAllocated, kDevice)};
  buffer->version = 1;
  BufferMirror& mirror = BufferMirror::Of(*buffer.get());
  mirror.OnHost(kRead, 0, 100, "test");
  UseOnDevice(buffer, false, 0, 100);  // nothing is stale there
  const MirrorCounters before = MirrorCountersOf(kDevice);
  UseOnDevice(buffer, false, 0, 50);
  mirror.OnHost(kRead, 0, 100, "test");
  mirror.OnHost(kRead, 10, 20, "test");
  const MirrorCounters after = MirrorCountersOf(kDevice);
  EXPECT_EQ(after.avoided_to_device, before.avoided_to_device + 1);
  EXPECT_EQ(after.avoided_to_host, before.avoided_to_host + 2);
  EXPECT_EQ(after.copies_to_host, before.copies_to_host);
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  ASSERT_EQ(snapshot.mirrors.size(), 1u);
  EXPECT_EQ(snapshot.mirrors[0].device, kDevice);
  EXPECT_EQ(snapshot.mirrors[0].counters.avoided_to_host, after.avoided_to_host);
  EXPECT_THAT(snapshot.ToString(), HasSubstr("had no need to be"));
  EXPECT_THAT(snapshot.ToJson(), HasSubstr("\"avoided_to_host\""));
}

// The copies of one call are queued together; the host does not wait for them.
TEST_F(BufferMirrorTest, CopiesToTheDeviceAreBatchedAndNotWaitedFor) {
  device_.set_has_pinned_host(true);
  device_.set_asynchronous(11);
  std::vector<BufferHandle> buffers;
  std::vector<BufferMirror::DeviceUse> uses;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(NewOnDevice(100, 0));
    std::memset(BufferMirror::Of(*buffers[i].get()).OnHost(kOverwrite, 0, 100, "test"), i + 1, 100);
    uses.push_back({buffers[i].get(), 0, 100, false, "add", "X"});
  }
  BufferMirror::PrepareForDevice(uses);
  EXPECT_EQ(device_.counters().copies_from_host, 5);
  std::vector<std::byte> seen(5);
  for (int i = 0; i < 5; ++i) {
    device_.QueueKernel(
        {{buffers[i]->data, buffers[i]->data + 100}},
        [&, i, hidden = device_.Hidden(buffers[i]->data, 100)] { seen[i] = hidden[99]; });
  }
  device_.WaitFor(device_.ComputePoint(0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(seen[i], static_cast<std::byte>(i + 1));
  // The host copy may be written again only once it has been read.
  for (int i = 0; i < 5; ++i) {
    BufferMirror::Of(*buffers[i].get()).OnHost(kWrite, 0, 1, "test")[0] = std::byte{7};
  }
  buffers.clear();
}

TEST_F(BufferMirrorTest, AFailedCopyChangesNothing) {
  const BufferHandle one = NewOnDevice(100, 1), two = NewOnDevice(100, 1);
  BufferMirror& mirror = BufferMirror::Of(*one.get());
  device_.faults().FailRequest(0);
  EXPECT_THROW(mirror.OnHost(kRead, 0, 100, "test"), Error);
  device_.faults().Clear();
  EXPECT_FALSE(mirror.IsFreshOnHost(0, 1));
  mirror.OnHost(kWrite, 0, 100, "test")[0] = std::byte{2};
  BufferMirror::Of(*two.get()).OnHost(kWrite, 0, 100, "test")[0] = std::byte{3};
  const BufferMirror::DeviceUse uses[] = {{one.get(), 0, 100, false, "add", "X"},
                                          {two.get(), 0, 100, false, "add", "Y"}};
  device_.faults().FailRequest(1);
  EXPECT_THROW(BufferMirror::PrepareForDevice(uses), Error);
  device_.faults().Clear();
  EXPECT_TRUE(mirror.IsFreshOnDevice(0, 100));
  EXPECT_FALSE(BufferMirror::Of(*two.get()).IsFreshOnDevice(0, 1));
  BufferMirror::PrepareForDevice(uses);
  EXPECT_EQ(OnDevice(one, 0), std::byte{2});
  EXPECT_EQ(OnDevice(two, 0), std::byte{3});
}

}  // namespace
}  // namespace tidepool
