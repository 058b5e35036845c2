// A hand-over between threads, explored under every interleaving: docs/testing_memory.md.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace {

// [mailbox]
template <typename Sync>
class Mailbox {
 public:
  void Put(int value) {
    value_.set(value);
    full_.store(true, std::memory_order_release);
    full_.notify_one();
  }
  int Take() {
    full_.wait(false, std::memory_order_acquire);
    return value_.get();
  }

 private:
  typename Sync::template Plain<int> value_{0};
  typename Sync::template Atomic<bool> full_{false};
};
// [mailbox]

TEST(Mailbox, InProduction) {
  Mailbox<tidepool::StdSync> box;
  std::thread other([&box] { box.Put(42); });
  EXPECT_EQ(box.Take(), 42);
  other.join();
}

// [explored]
namespace explorer = tidepool::explorer;

void HandOver(explorer::Execution& execution) {
  auto& box = execution.Make<Mailbox<explorer::Sync>>();
  execution.Thread([&box] { box.Put(42); });
  execution.Thread([&box] { explorer::Check(box.Take() == 42, "what was put is taken"); });
}

TEST(Mailbox, HandsOverUnderEveryInterleaving) {
  const explorer::Result result = explorer::Explore({.name = "mailbox"}, HandOver);
  EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
}
// [explored]

// [mutated]
TEST(Mailbox, NeedsAllThatItHas) {
  const explorer::MutationTable table = explorer::ExploreMutations({.name = "mailbox"}, HandOver);
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}
// [mutated]

}  // namespace
