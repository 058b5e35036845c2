#include "tidepool/backends/cpu/xnnpack/shared_pages.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
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
      is_block = begin >= reinterpret_cast<uintptr_t>(block) &&
                 end <= reinterpret_cast<uintptr_t>(block) + bytes;
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

// What `child` returns in a process of its own, or minus the signal that ended it.
int InChild(const std::function<int()>& child) {
  const pid_t id = fork();
  if (id == 0) _exit(child());
  int status = 0;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(SharedPages, NeitherParentNorChildTakesPagesOfTheOtherAway) {
  SharedPages& pages = SharedPages::Global();
  std::byte* const a = Filled(pages, 21);
  std::byte* const b = Filled(pages, 22);
  const std::vector<std::byte> bytes_a(a, a + kBytes), bytes_b(b, b + kBytes);
  const auto is = [](const std::byte* block, const std::vector<std::byte>& bytes) {
    return std::memcmp(block, bytes.data(), kBytes) == 0;
  };
  if (pages.Share(a) == 0 || pages.Share(b) == 0)
    GTEST_SKIP() << "the system has no files in memory";
  // The child drops one and shares others, while the parent waits.
  EXPECT_EQ(InChild([&] {
              pages.Release(a);
              std::byte* const c = Filled(pages, 23);
              const std::vector<std::byte> bytes_c(c, c + kBytes);
              const bool shared = pages.Share(c) > 0;
              return shared && is(c, bytes_c) && is(b, bytes_b) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is(a, bytes_a));
  EXPECT_TRUE(is(b, bytes_b));
  // And the other way round: the child looks when the parent has let go of one and shared others.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t id = fork();
  if (id == 0) {
    char done;
    _exit(read(ends[0], &done, 1) == 1 && is(a, bytes_a) && is(b, bytes_b) ? 0 : 1);
  }
  pages.Release(a);
  std::byte* const d = Filled(pages, 24);
  EXPECT_GT(pages.Share(d), 0u);
  std::byte* const again = Filled(pages, 22);
  EXPECT_GT(pages.Share(again), 0u);  // with what is left of before
  EXPECT_TRUE(is(again, bytes_b));
  ASSERT_EQ(write(ends[1], "!", 1), 1);
  int status = 0;
  waitpid(id, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(ends[0]);
  close(ends[1]);
  for (std::byte* const block : {b, d, again}) pages.Release(block);
}

TEST(SharedPages, FilesStayWithinALimit) {
  const auto whole = static_cast<rlim_t>(SharedPages::InPages(kBytes));
  const auto shared_below = [&](rlim_t limit, int rounds) {
    return InChild([=] {
      const rlimit most{limit, limit};
      if (setrlimit(RLIMIT_FSIZE, &most) != 0) return 100;
      SharedPages pages;
      int shared = 0;
      for (int i = 0; i < rounds; ++i) {
        std::byte* const block = Filled(pages, static_cast<uint32_t>(i));
        shared += pages.Share(block) > 0;
        pages.Release(block);
      }
      return shared;
    });
  };
  if (shared_below(RLIM_INFINITY, 1) != 1) GTEST_SKIP() << "the system has no files in memory";
  EXPECT_EQ(shared_below(whole - 1, 3), 0);  // not ended by a signal
  EXPECT_EQ(shared_below(whole, 20), 20);    // by ranges that are used again
}

}  // namespace
}  // namespace tidepool::cpu
