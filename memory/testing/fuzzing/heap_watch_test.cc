#include "tidepool/memory/testing/fuzzing/heap_watch.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(HeapWatch, SeesMostThatWasHeldAtOnceByWhomever) {
  const HeapWatch nothing;
  EXPECT_LT(nothing.peak_bytes(), 1 << 16);
  const auto peak_of = [](auto use) {
    const HeapWatch watch;
    use();
    return watch.peak_bytes();
  };
  constexpr int64_t kMiB = 1 << 20;
  const auto is_about = [](int64_t found, int64_t wanted) {
    return found >= wanted && found < wanted + wanted / 4;
  };
  EXPECT_TRUE(is_about(peak_of([] { std::vector<char> bytes(4 * kMiB); }), 4 * kMiB));
  EXPECT_TRUE(is_about(peak_of([] {
                         for (int i = 0; i < 10; ++i) std::free(std::calloc(3, kMiB));
                       }),
                       3 * kMiB));
  EXPECT_TRUE(is_about(peak_of([] {
                         void* data = std::malloc(kMiB);
                         data = std::realloc(data, 8 * kMiB);
                         std::free(data);
                       }),
                       8 * kMiB));
  EXPECT_TRUE(is_about(peak_of([] { std::free(std::aligned_alloc(64, 2 * kMiB)); }), 2 * kMiB));
  EXPECT_TRUE(is_about(peak_of([] {
                         void* data = nullptr;
                         EXPECT_EQ(posix_memalign(&data, 4096, kMiB), 0);
                         std::free(data);
                       }),
                       kMiB));
}

}  // namespace
}  // namespace tidepool
