#include "tidepool/ndarray/gradient/write_log.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

std::vector<size_t> Found(const WriteLog& log, uint64_t buffer) {
  std::vector<size_t> found;
  log.VisitBackwards(buffer, [&](size_t number, const WriteLog::Write& write) {
    EXPECT_EQ(write.buffer_id, buffer);
    found.push_back(number);
    return true;
  });
  return found;
}

TEST(WriteLogTest, FindsTheWritesToABufferTheLatestFirst) {
  std::mt19937 random(7);
  for (const uint64_t buffers : {1, 3, 200}) {
    WriteLog log;
    for (int round = 0; round < 3; ++round) {  // of one tape, which keeps the memory
      std::vector<std::vector<size_t>> expected(buffers + 2);
      for (size_t number = 0; number < 1000; ++number) {
        const uint64_t buffer = 1 + random() % buffers;
        expected[buffer].insert(expected[buffer].begin(), number);
        log.Add({buffer, static_cast<uint32_t>(number), Places(0, 1), "add", nullptr});
        ASSERT_EQ(log.size(), number + 1);
        ASSERT_EQ(log[number].version, number);
        if (number == 63 || number == 64) {
          ASSERT_EQ(Found(log, buffer), expected[buffer]);
        }
      }
      for (uint64_t buffer = 0; buffer < expected.size(); ++buffer)
        EXPECT_EQ(Found(log, buffer), expected[buffer]) << buffer;
      log.Clear();
      EXPECT_EQ(log.size(), 0u);
      for (uint64_t buffer = 0; buffer < expected.size(); ++buffer)
        EXPECT_TRUE(Found(log, buffer).empty());
    }
  }
}

TEST(WriteLogTest, EndsWhereItIsToldTo) {
  WriteLog log;
  EXPECT_TRUE(Found(log, 1).empty());
  for (uint32_t i = 0; i < 10; ++i) log.Add({1, i, Places(0, 1), "add", nullptr});
  int seen = 0;
  log.VisitBackwards(1, [&](size_t number, const WriteLog::Write&) {
    ++seen;
    return number > 7;
  });
  EXPECT_EQ(seen, 3);
}

// Versions are numbers of 32 bits, which a buffer that lives long goes round.
TEST(WriteLogTest, LaterVersionsAreLaterAcrossTheEndOfTheirNumbers) {
  const WriteLog::Write write{1, 2, Places(0, 1), "add", nullptr};
  EXPECT_TRUE(write.IsLaterThan(1));
  EXPECT_FALSE(write.IsLaterThan(2));
  EXPECT_TRUE(write.IsLaterThan(UINT32_MAX - 1));
  EXPECT_TRUE(write.where.MayOverlap(Places(0, 5)));
  EXPECT_FALSE(write.where.MayOverlap(Places(1, 5)));
  EXPECT_FALSE(write.where.MayOverlap(Places(-3, 0)));
}

}  // namespace
}  // namespace tidepool
