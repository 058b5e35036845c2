#include "tidepool/memory/testing/explorer/mutations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <regex>
#include <string>

#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;
constexpr std::memory_order kSeqCst = std::memory_order_seq_cst;

// Without ":123", which changes with the file.
std::string WithoutLines(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(mutations_test\.cc:\d+ )"), "");
}

struct Box {
  Sync::Plain<int> value{0};
  Sync::Atomic<int> full{0}, sleepers{0};
};

TEST(Mutations, OfWhatIsNeededAreAllDetected) {
  const MutationTable table = ExploreMutations({.name = "box"}, [](Execution& execution) {
    Box& box = execution.Make<Box>();
    execution.Thread([&box] {
      box.value.set(1);
      box.full.store(1, kRelease);
      Sync::Fence(kSeqCst);
      if (box.sleepers.load(kRelaxed) != 0) box.full.notify_one();
    });
    execution.Thread([&box] {
      box.sleepers.store(1, kRelaxed);
      Sync::Fence(kSeqCst);
      box.full.wait(0, kAcquire);
      box.value.get();
    });
  });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "");
  std::string mutations;
  for (const MutationTable::Row& row : table.rows) mutations += row.text() + "\n";
  EXPECT_EQ(WithoutLines(mutations),
            "store release -> relaxed\n"
            "fence seq_cst -> acq_rel\n"
            "fence seq_cst left out\n"
            "fence seq_cst -> acq_rel\n"
            "fence seq_cst left out\n"
            "wait acquire -> relaxed\n"
            "notify_one left out\n");
  EXPECT_EQ(table.rows[0].operation, "store");
  EXPECT_EQ(table.rows[0].from, "release");
  EXPECT_EQ(table.rows[0].to, "relaxed");
  EXPECT_EQ(table.rows[0].result.failure, FailureKind::kDataRace);
  EXPECT_EQ(table.rows[1].result.failure, FailureKind::kDeadlock);
}

// What is stronger than needed is told, with the line.
TEST(Mutations, OfWhatIsNeedlessAreListed) {
  const MutationTable table = ExploreMutations({}, [](Execution& execution) {
    auto& count = execution.Make<Sync::Atomic<int>>(0);
    for (int i = 0; i < 2; ++i) {
      execution.Thread([&count] { count.fetch_add(1, std::memory_order_acq_rel); });
    }
    execution.AtEnd([&count] { Check(count.load(kRelaxed) == 2, "both counted"); });
  });
  EXPECT_EQ(WithoutLines(table.undetected()),
            "fetch_add acq_rel -> acquire\n"
            "fetch_add acq_rel -> release\n");
  EXPECT_NE(table.report().find("mutations: 0 of 2 detected; the code as it is passes "),
            std::string::npos)
      << table.report();
}

TEST(Mutations, OfWhatFailsAnywayAreNotTried) {
  const MutationTable table = ExploreMutations({.name = "wrong"}, [](Execution& execution) {
    auto& x = execution.Make<Sync::Atomic<int>>(0);
    execution.Thread([&x] { Check(x.load() == 1, "x is 1"); });
  });
  EXPECT_EQ(table.original.failure, FailureKind::kCheck);
  EXPECT_TRUE(table.rows.empty());
  EXPECT_EQ(table.report(), table.original.report());
}

// Both orders of a compare-exchange, and two operations in one line.
TEST(Mutations, OfCompareExchanges) {
  const MutationTable table = ExploreMutations({}, [](Execution& execution) {
    auto& x = execution.Make<Sync::Atomic<int>>(0);
    execution.Thread([&x] {
      int expected = 1;
      x.compare_exchange_strong(expected, 2, kSeqCst, kAcquire);
      if (x.load(kAcquire) > 3 || x.load(kAcquire) < 0) x.store(1, kSeqCst);
    });
    execution.Thread([&x] { x.store(1, kSeqCst); });
  });
  std::string text = table.report();
  EXPECT_NE(text.find("compare_exchange_strong seq_cst -> acq_rel"), std::string::npos) << text;
  EXPECT_NE(text.find("compare_exchange_strong failing acquire -> relaxed"), std::string::npos)
      << text;
  EXPECT_EQ(table.rows.size(), 5) << text;
}

}  // namespace
}  // namespace tidepool::explorer
