// Which provider runs a call, and the bits of its result, depend on the shapes and not on the threads.
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

NDArray Drawn(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  NDArray x(shape, DType::kFloat32);
  float* const values = x.mutable_data<float>();
  for (int64_t i = 0; i < x.NumElements(); ++i)
    values[i] = static_cast<float>(random() % 2001) / 1000 - 1;
  return x;
}

template <typename Call>
void ExpectSameBits(const std::string& what, const Call& call) {
  SetThreadCount(1);
  const NDArray one = call();
  for (const int threads : {2, 3, 5}) {
    SetThreadCount(threads);
    const NDArray several = call();
    EXPECT_EQ(std::memcmp(one.data<float>(), several.data<float>(),
                          static_cast<size_t>(one.NumElements()) * 4),
              0)
        << what << " with " << threads << " threads";
  }
  SetThreadCount(1);
}

// What a network takes is found by dry runs, whose operands hold whatever memory held: of what was no number another kernel was
// chosen, with scratch of its own, so that a report was too high for half of all processes.
TEST(XnnpackKernels, ADryRunTakesTheSameWhateverMemoryHeld) {
  NDArray y = Drawn({256, 128}, 1), filter = Drawn({16, 3, 3, 8}, 2);
  for (const Shape& shape : {Shape{32, 256}, Shape{2, 8, 8, 8}}) {
    const auto taken = [&](float value) {
      NDArray x(shape, DType::kFloat32);
      FillInto(value, x);
      const KernelsOffScope off;
      PeakScope peak;
      if (shape.rank() == 2) {
        (void)MatMul(x, y, {.y_is_constant = true});
      } else {
        (void)Conv2d(x, filter, nullptr, {.filter_is_constant = true});
      }
      return peak.peak_in_use_bytes() - peak.start().in_use;
    };
    (void)taken(0.5f);  // what the library makes once
    const int64_t of_numbers = taken(0.5f);
    EXPECT_EQ(taken(std::numeric_limits<float>::quiet_NaN()), of_numbers) << shape.ToString();
  }
}

TEST(XnnpackKernels, TheDefaultChoiceHasTheSameBitsForAnyNumberOfThreads) {
  const int before = ThreadCount();
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{1, 300, 900},
                                {4, 33, 1000},
                                {7, 784, 1000},
                                {64, 128, 65},
                                {65, 300, 300},
                                {300, 64, 127},
                                {16, 1200, 900},
                                {2, 2, 2}}) {
    for (const bool transpose : {false, true}) {
      const NDArray x = Drawn({m, k}, 1), y = Drawn(transpose ? Shape{n, k} : Shape{k, n}, 2),
                    bias = Drawn({n}, 3);
      ExpectSameBits("product", [&] {
        return MatMul(x, y, {.transpose_y = transpose, .relu = n % 2 == 0, .y_is_constant = true},
                      &bias);
      });
    }
  }
  struct Case {
    int64_t batch, size, in, out, kernel, groups;
  };
  for (const Case& c : {Case{1, 28, 32, 64, 3, 1},
                        {3, 14, 64, 100, 1, 1},
                        {1, 7, 20, 33, 5, 1},
                        {1, 40, 256, 256, 3, 256},
                        {2, 20, 192, 192, 3, 192},
                        {1, 56, 32, 32, 3, 32},
                        {2, 20, 64, 96, 3, 4},
                        {1, 30, 130, 260, 3, 130}}) {
    const NDArray x = Drawn({c.batch, c.size, c.size, c.in}, 4);
    const NDArray filter = Drawn({c.out, c.kernel, c.kernel, c.in / c.groups}, 5),
                  bias = Drawn({c.out}, 6);
    Conv2dAttributes a;
    a.groups = c.groups, a.filter_is_constant = true, a.pad_top = a.pad_left = 1,
    a.relu = c.out % 2 == 0;
    ExpectSameBits("convolution", [&] { return Conv2d(x, filter, &bias, a); });
    // And what is computed is that.
    const NDArray found = Conv2d(x, filter, &bias, a);
    ScopedProvider reference("reference");
    const NDArray expected = Conv2d(x, filter, &bias, a);
    for (int64_t i = 0; i < found.NumElements(); ++i) {
      ASSERT_NEAR(found.data<float>()[i], expected.data<float>()[i], 2e-4)
          << c.in << " " << c.out << ", element " << i;
    }
  }
  for (const auto& [rows, n] :
       {std::pair<int64_t, int64_t>{1, 70000}, {8, 64}, {500, 700}, {5000, 65}, {3, 100}}) {
    const NDArray x = Drawn({rows, n}, 7);
    ExpectSameBits("softmax", [&] { return Softmax(x); });
  }
  SetThreadCount(before);
}

}  // namespace
}  // namespace tidepool
