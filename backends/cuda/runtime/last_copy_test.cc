// Under every interleaving of two threads that copy in one stream.
#include "tidepool/backends/cuda/runtime/last_copy.h"

#include <stdexcept>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::cuda {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Sync;

struct Point {
  uint64_t value = 0;
};
struct Stream {
  // A copy is queued, and then its point: as many as are queued by then.
  void Copy(bool refused = false) {
    queued.fetch_add(1, std::memory_order_relaxed);
    try {
      last.Note([&] {
        if (refused) throw std::runtime_error("no point");
        return Point{queued.load(std::memory_order_relaxed)};
      });
    } catch (const std::runtime_error&) {
    }
  }
  Sync::Atomic<uint64_t> queued{0};
  LastCopy<Sync, Point> last;
};

TEST(LastCopyTest, IsBehindAllCopies) {
  const explorer::Result result =
      explorer::Explore({.name = "last_copy"}, [](Execution& execution) {
        auto& stream = execution.Make<Stream>();
        for (int i = 0; i < 2; ++i) execution.Thread([&stream] { stream.Copy(); });
        execution.AtEnd(
            [&stream] { Check(stream.last.point().value == 2, "the last point is behind both"); });
      });
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
}

TEST(LastCopyTest, AThreadWithoutAPointForgetsNoOthers) {
  const explorer::Result result = explorer::Explore({.name = "refused"}, [](Execution& execution) {
    auto& stream = execution.Make<Stream>();
    execution.Thread([&stream] { stream.Copy(); });
    execution.Thread([&stream] { stream.Copy(/*refused=*/true); });
    execution.AtEnd(
        [&stream] { Check(stream.last.point().value > 0, "the other's copy has its point"); });
  });
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
}

}  // namespace
}  // namespace tidepool::cuda
