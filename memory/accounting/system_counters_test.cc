#include "tidepool/memory/accounting/system_counters.h"

#include <sys/mman.h>

#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/refused_threads.h"

namespace tidepool {
namespace {

TEST(SystemCounters, CountsOneFaultPerFreshPage) {
  constexpr int kPages = 64;
  void* memory =
      mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, kPages * 4096, MADV_NOHUGEPAGE);
  const int64_t before = PageFaults();
  for (int i = 0; i < kPages; ++i) static_cast<volatile char*>(memory)[i * 4096] = 1;
  EXPECT_GE(PageFaults() - before, kPages);
  const int64_t warm = PageFaults();
  for (int i = 0; i < kPages; ++i) static_cast<volatile char*>(memory)[i * 4096] = 2;
  EXPECT_EQ(PageFaults(), warm);
  munmap(memory, kPages * 4096);
}

TEST(SystemCounters, PrefaultingTheProgramLeavesItUsable) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's shadow of the program is touched by each access";
#endif
  static char never_touched[1 << 20];
  PrefaultProgram();
  const int64_t before = PageFaults();
  for (size_t i = 0; i < sizeof(never_touched); i += 4096) {
    static_cast<volatile char*>(never_touched)[i] = 1;
  }
  EXPECT_LE(PageFaults() - before, 2);
}

TEST(SystemCounters, WithoutAThreadNothingIsCounted) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "not counted with AddressSanitizer";
#endif
  const RefusedThreads refused;
  std::string reason;
  EXPECT_FALSE(StartCountingMemorySystemCalls(&reason));
  EXPECT_NE(reason.find("refused a thread that counts them: Resource temp"), std::string::npos)
      << reason;
  EXPECT_EQ(MemorySystemCalls(), -1);
}

TEST(SystemCounters, CountsMemorySystemCallsOfThisThreadAndItsChildren) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer maps memory of its own";
#endif
  std::string reason;
  if (!StartCountingMemorySystemCalls(&reason)) GTEST_SKIP() << reason;
  EXPECT_TRUE(StartCountingMemorySystemCalls(&reason));
  int64_t before = MemorySystemCalls();
  for (int i = 0; i < 5; ++i) {
    munmap(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
  }
  EXPECT_EQ(MemorySystemCalls() - before, 10);
  before = MemorySystemCalls();
  void* volatile large = std::malloc(64 << 20);  // malloc maps a block of this size
  EXPECT_GE(MemorySystemCalls() - before, 1);
  std::free(large);
  before = MemorySystemCalls();
  int64_t in_child = 0;
  std::thread child([&] {
    const int64_t start = MemorySystemCalls();
    munmap(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    in_child = MemorySystemCalls() - start;
  });
  child.join();
  EXPECT_EQ(in_child, 2);
}

}  // namespace
}  // namespace tidepool
