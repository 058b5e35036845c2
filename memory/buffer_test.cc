// Buffers outside of workspaces: whose they are on the ledger, and as what.
#include "tidepool/memory/buffer.h"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

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
    const BufferHandle gradient(
        NewImportedBuffer(bytes, 32, release, &released, MemoryKind::kGradientExternal));
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

std::string MessageOf(absl::FunctionRef<void()> call) {
  return std::string(CatchStatus(call).message());
}

TEST(Buffer, AKindIsOneOfThoseThereAre) {
  const BufferHandle array(NewHeapBuffer(64));
  for (const int kind : {kMemoryKinds, 255}) {
    EXPECT_THAT(MessageOf([&] { SetBufferKind(*array.get(), static_cast<MemoryKind>(kind)); }),
                HasSubstr("SetBufferKind: kind " + std::to_string(kind) + ", expected one of"));
  }
  EXPECT_EQ(array->kind, MemoryKind::kAllocated);
}

TEST(Buffer, NothingIsImportedFromNull) {
  const int64_t external = Counted(MemoryKind::kExternal);
  int released = 0;
  auto release = [](void* context) { ++*static_cast<int*>(context); };
  EXPECT_THAT(MessageOf([&] { NewImportedBuffer(nullptr, 64, release, &released); }),
              HasSubstr("NewImportedBuffer: 64 bytes at a null pointer"));
  EXPECT_EQ(released, 0);  // it is still the caller's
  EXPECT_EQ(Counted(MemoryKind::kExternal), external);
  { const BufferHandle nothing(NewImportedBuffer(nullptr, 0, release, &released)); }
  EXPECT_EQ(released, 1);
}

TEST(Buffer, WhatIsImportedIsInTheAddressSpace) {
  char bytes[64];
  EXPECT_THAT(MessageOf([&] { NewImportedBuffer(bytes, size_t{1} << 62, nullptr, nullptr); }),
              HasSubstr("NewImportedBuffer: found 4611686018427387904 bytes at "));
  EXPECT_THAT(MessageOf([&] {
                NewImportedBuffer(reinterpret_cast<void*>(UINTPTR_MAX - 10), 64, nullptr, nullptr);
              }),
              HasSubstr("NewImportedBuffer: found 64 bytes at "));
}

// However often the same bytes are imported, all sums are numbers.
TEST(Buffer, ImportsAreAsManyAsCanBeCounted) {
  const int64_t external = Counted(MemoryKind::kExternal);
  const int64_t before = Of("process").total.current_bytes;
  int released = 0;
  auto import = [&] {
    return BufferHandle(NewImportedBuffer(
        reinterpret_cast<void*>(4096), size_t{kMostCountedBytes},
        [](void* context) { ++*static_cast<int*>(context); }, &released));
  };
  const int64_t most = (kMostCountedBytesInAll - before) / kMostCountedBytes;
  std::vector<BufferHandle> imports;
  for (int64_t i = 0; i < most; ++i) imports.push_back(import());
  EXPECT_EQ(Counted(MemoryKind::kExternal) - external, most * kMostCountedBytes);
  EXPECT_THAT(
      MessageOf(import),
      HasSubstr("ledger: " + std::to_string(kMostCountedBytes) + " bytes more of host, beside " +
                std::to_string(before + most * kMostCountedBytes) + ": expected at most " +
                std::to_string(kMostCountedBytesInAll) + " in all"));
  EXPECT_EQ(released, 0);  // what was refused is still the caller's
  imports.pop_back();
  imports.push_back(import());
  imports.clear();
  EXPECT_EQ(released, most + 1);
  EXPECT_EQ(Counted(MemoryKind::kExternal), external);
}

// The ledger has each byte of it under one kind, whichever comes first.
TEST(Buffer, AKindChangesWhileAnotherThreadCloses) {
  const MemoryKind kinds[] = {MemoryKind::kGradientStandard, MemoryKind::kGradientDeferred};
  const int64_t before[] = {Counted(kinds[0]), Counted(kinds[1])};
  constexpr int kRounds = 1000;
  BufferHandle array;
  std::atomic<int> round{-1}, done{-1};
  std::thread closer([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
      for (int spin = i % 200; spin > 0; --spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      array->Close();
      done.store(i, std::memory_order_release);
    }
  });
  int64_t wrong = 0;
  for (int i = 0; i < kRounds; ++i) {
    array = BufferHandle(NewHeapBuffer(4096, 64, kinds[0]));
    round.store(i, std::memory_order_release);
    for (int k = 1; done.load(std::memory_order_acquire) < i; ++k) {
      SetBufferKind(*array.get(), kinds[k % 2]);
    }
    wrong += Counted(kinds[0]) != before[0] || Counted(kinds[1]) != before[1];
  }
  closer.join();
  EXPECT_EQ(wrong, 0) << "of " << kRounds << " rounds";
}

// Two threads that change it, too.
TEST(Buffer, AKindChangesOnTwoThreads) {
  const MemoryKind kinds[] = {MemoryKind::kGradientStandard, MemoryKind::kGradientDeferred};
  const int64_t before[] = {Counted(kinds[0]), Counted(kinds[1])};
  {
    const BufferHandle array(NewHeapBuffer(4096, 64, kinds[0]));
    std::atomic<int> ready{0};
    const auto change = [&](int first) {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      for (int i = 0; i < 50000; ++i) SetBufferKind(*array.get(), kinds[(first + i) % 2]);
    };
    std::thread other([&] { change(0); });
    change(1);
    other.join();
    EXPECT_EQ(Counted(kinds[0]) + Counted(kinds[1]), before[0] + before[1] + 4096);
  }
  EXPECT_EQ(Counted(kinds[0]), before[0]);
  EXPECT_EQ(Counted(kinds[1]), before[1]);
}

}  // namespace
}  // namespace tidepool
