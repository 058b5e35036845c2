#include "tidepool/backends/cpu/xnnpack/shared_pages.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool::cpu {
namespace {

constexpr size_t kBytes = 100'000;

int64_t Used() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal); }

// Of the process, file pages that are mapped counted with each mapping: what the kernel says are pages of its own.
int64_t PrivateBytesOf(const std::byte* block, size_t bytes) {
  std::FILE* const maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  bool is_block = false;
  int64_t kilobytes = 0;
  while (maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line, "%lx-%lx", &begin, &end) == 2) {
      is_block = begin >= reinterpret_cast<uintptr_t>(block) && end <= reinterpret_cast<uintptr_t>(block) + bytes;
    }
    long size = 0;
    if (is_block && std::sscanf(line, "Anonymous: %ld", &size) == 1) kilobytes += size;
  }
  if (maps != nullptr) std::fclose(maps);
  return kilobytes * 1024;
}

std::byte* Filled(SharedPages& pages, uint32_t seed, size_t bytes = kBytes) {
  std::byte* const block = pages.Allocate(bytes);
  std::mt19937 random(seed);
  for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(random());
  return block;
}

TEST(SharedPages, EqualBytesAreThereOnceAndOnTheLedgerOnce) {
  SharedPages pages;
  const auto whole = static_cast<int64_t>(SharedPages::InPages(kBytes));
  const int64_t before = Used();
  std::byte* const a = Filled(pages, 1);
  const std::vector<std::byte> expected(a, a + kBytes);
  EXPECT_EQ(Used() - before, whole);
  if (pages.Share(a) == 0) GTEST_SKIP() << "the system has no files in memory";
  EXPECT_EQ(Used() - before, whole);
  std::byte* const b = Filled(pages, 1);
  std::byte* const c = Filled(pages, 2);
  EXPECT_EQ(Used() - before, 3 * whole);
  EXPECT_EQ(pages.Share(b), static_cast<size_t>(whole));
  EXPECT_EQ(pages.Share(c), static_cast<size_t>(whole));
  EXPECT_EQ(Used() - before, 2 * whole);
  EXPECT_EQ(pages.owned_bytes(), 2 * whole);
  EXPECT_EQ(pages.images(), 2u);
  EXPECT_EQ(PrivateBytesOf(a, kBytes), 0);
  EXPECT_EQ(PrivateBytesOf(b, kBytes), 0);
  for (const std::byte* block : {a, b}) EXPECT_EQ(std::memcmp(block, expected.data(), kBytes), 0);
  // Whoever goes first.
  pages.Release(a);
  EXPECT_EQ(std::memcmp(b, expected.data(), kBytes), 0);
  EXPECT_EQ(Used() - before, 2 * whole);
  pages.Release(b);
  EXPECT_EQ(Used() - before, whole);
  EXPECT_EQ(pages.images(), 1u);
  // The same bytes again, when their image has gone.
  std::byte* const d = Filled(pages, 1);
  pages.Share(d);
  EXPECT_EQ(std::memcmp(d, expected.data(), kBytes), 0);
  pages.Release(c);
  pages.Release(d);
  EXPECT_EQ(Used(), before);
  EXPECT_EQ(pages.images(), 0u);
}

TEST(SharedPages, AWriteToOneChangesNoOther) {
  SharedPages pages;
  std::byte* const a = Filled(pages, 1);
  std::byte* const b = Filled(pages, 1);
  const std::vector<std::byte> expected(a, a + kBytes);
  pages.Share(a);
  pages.Share(b);
  std::memset(a, 7, kBytes);
  EXPECT_EQ(std::memcmp(b, expected.data(), kBytes), 0);
  // Nor what later ones are compared with.
  std::byte* const c = Filled(pages, 1);
  pages.Share(c);
  EXPECT_EQ(std::memcmp(c, expected.data(), kBytes), 0);
  EXPECT_EQ(static_cast<int>(a[kBytes - 1]), 7);
  for (std::byte* block : {a, b, c}) pages.Release(block);
}

TEST(SharedPages, LengthsAndSingleBytesTellBlocksApart) {
  SharedPages pages;
  std::byte* const a = Filled(pages, 1);
  std::byte* const longer = Filled(pages, 1, kBytes + 4096);
  std::byte* const other = Filled(pages, 1);
  other[kBytes - 1] ^= std::byte{1};
  const std::byte last = other[kBytes - 1];
  for (std::byte* block : {a, longer, other}) pages.Share(block);
  EXPECT_EQ(other[kBytes - 1], last);
  EXPECT_NE(a[kBytes - 1], last);
  for (std::byte* block : {a, longer, other}) pages.Release(block);
  EXPECT_EQ(pages.owned_bytes(), 0);
}

TEST(SharedPages, ManyThreadsShareAndRelease) {
  SharedPages pages;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pages, t] {
      for (uint32_t i = 0; i < 50; ++i) {
        std::byte* const block = Filled(pages, i % 3, 8192);
        const std::vector<std::byte> expected(block, block + 8192);
        pages.Share(block);
        EXPECT_EQ(std::memcmp(block, expected.data(), 8192), 0);
        if (t % 2 == 0) block[i] = std::byte{9};
        pages.Release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pages.owned_bytes(), 0);
  EXPECT_EQ(pages.images(), 0u);
}

}  // namespace
}  // namespace tidepool::cpu
