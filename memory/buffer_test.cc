// Buffers outside of workspaces: whose they are on the ledger, and as what.
#include "tidepool/memory/buffer.h"

#include <optional>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

OwnerMemory Of(const std::string& owner, const std::string& tag = "") {
  return MemoryTracker::Global().Snapshot().Of(owner, tag);
}
int64_t Counted(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }

TEST(Buffer, HeapMemoryIsTheOwnersOfItsBirthUntilItGoes) {
  BufferHandle array;
  {
    MemoryOwnerScope owner("net");
    MemoryTagScope tag("conv");
    array = BufferHandle(NewHeapBuffer(1000));
  }
  EXPECT_EQ(Of("net", "conv").total.current_bytes, 1000);
  EXPECT_EQ(Of("net").own_bytes, 0);
  MemoryOwnerScope other("other");
  std::thread([moved = std::move(array)]() mutable { moved.Reset(); }).join();
  EXPECT_EQ(Of("net", "conv").total.current_bytes, 0);
  EXPECT_EQ(Of("net", "conv").total.peak_bytes, 1000);
  EXPECT_THROW(Of("other"), Error);
}

TEST(Buffer, ClosingGivesTheBytesBackOnce) {
  MemoryOwnerScope owner("closing");
  BufferHandle array(NewHeapBuffer(64));
  const BufferHandle copy = array;
  array->Close();
  EXPECT_EQ(Of("closing").total.current_bytes, 0);
  array.Reset();
  EXPECT_EQ(Of("closing").total.current_bytes, 0);
}

TEST(Buffer, ImportsAreExternalOfTheKindGiven) {
  MemoryOwnerScope owner("importer");
  char bytes[128];
  int released = 0;
  auto release = [](void* context) { ++*static_cast<int*>(context); };
  {
    const BufferHandle import(NewImportedBuffer(bytes, 64, release, &released));
    const BufferHandle gradient(NewImportedBuffer(bytes, 32, release, &released,
                                                  MemoryKind::kGradientExternal));
    EXPECT_EQ(Of("importer")[MemoryKind::kExternal].current_bytes, 64);
    EXPECT_EQ(Of("importer")[MemoryKind::kGradientExternal].current_bytes, 32);
  }
  EXPECT_EQ(released, 2);
  EXPECT_EQ(Of("importer").total.current_bytes, 0);
}

TEST(Buffer, ForeignCodeMayWriteWhileItHoldsTheBytesAndTheEndOfItCountsAsAWrite) {
  const BufferHandle array(NewHeapBuffer(64));
  EXPECT_FALSE(array->MayBeWrittenOutside());
  const uint32_t version = array->version;
  {
    std::optional<HeldBytes> first(std::in_place, array);
    const HeldBytes second(array);
    EXPECT_TRUE(array->MayBeWrittenOutside());
    first.reset();
    EXPECT_TRUE(array->MayBeWrittenOutside());
  }
  EXPECT_FALSE(array->MayBeWrittenOutside());
  EXPECT_GT(array->version, version);
  char bytes[64];
  const BufferHandle import(NewImportedBuffer(bytes, 64, nullptr, nullptr));
  { const HeldBytes held(import); }
  EXPECT_TRUE(import->MayBeWrittenOutside());
}

TEST(Buffer, AKindMayChange) {
  const int64_t standard = Counted(MemoryKind::kGradientStandard);
  const int64_t deferred = Counted(MemoryKind::kGradientDeferred);
  {
    const BufferHandle gradient(NewHeapBuffer(500, 64, MemoryKind::kGradientStandard));
    SetBufferKind(*gradient.get(), MemoryKind::kGradientDeferred);
    EXPECT_EQ(Counted(MemoryKind::kGradientStandard), standard);
    EXPECT_EQ(Counted(MemoryKind::kGradientDeferred), deferred + 500);
  }
  EXPECT_EQ(Counted(MemoryKind::kGradientDeferred), deferred);
  Workspace workspace("w", WorkspaceConfig::Training());
  WorkspaceScope scope(workspace);
  const BufferHandle attached(AllocateHere(64));
  EXPECT_THROW(SetBufferKind(*attached.get(), MemoryKind::kGradientDeferred), Error);
}

}  // namespace
}  // namespace tidepool
