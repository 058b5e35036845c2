#include "tidepool/backends/cpu/gemm/conv2d.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/convolution_arrays.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/example_sums.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 771204;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Conv2dCalls {
  using Problem = Conv2dProblem;
  static constexpr auto kForward = &Conv2dForward;
  static constexpr auto kGradInput = &Conv2dGradInput;
  static constexpr auto kGradFilter = &Conv2dGradFilter;
  static constexpr auto kForwardBytes = &Conv2dForwardScratchBytes;
  static constexpr auto kGradInputBytes = &Conv2dGradInputScratchBytes;
  static constexpr auto kGradFilterBytes = &Conv2dGradFilterScratchBytes;

  static size_t InputFloats(const Conv2dProblem& p) {
    return p.batch * p.in_height * p.in_width * p.in_channels;
  }
  static size_t OutputFloats(const Conv2dProblem& p) {
    return p.batch * p.OutHeight() * p.OutWidth() * p.out_channels;
  }
  static size_t FilterFloats(const Conv2dProblem& p) {
    return p.out_channels * p.kernel_height * p.kernel_width * p.in_channels;
  }

  // Calls visit(index of x, index of filter, index of y) for every product of the convolution.
  template <typename Visit>
  static void ForEachProduct(const Conv2dProblem& p, Visit visit) {
    for (int64_t n = 0; n < p.batch; ++n)
      for (int64_t oh = 0; oh < p.OutHeight(); ++oh)
        for (int64_t ow = 0; ow < p.OutWidth(); ++ow)
          for (int64_t kh = 0; kh < p.kernel_height; ++kh)
            for (int64_t kw = 0; kw < p.kernel_width; ++kw) {
              const int64_t ih = oh * p.stride_height + kh * p.dilation_height - p.pad_top;
              const int64_t iw = ow * p.stride_width + kw * p.dilation_width - p.pad_left;
              if (ih < 0 || ih >= p.in_height || iw < 0 || iw >= p.in_width) continue;
              for (int64_t co = 0; co < p.out_channels; ++co)
                for (int64_t ci = 0; ci < p.in_channels; ++ci) {
                  visit(((n * p.in_height + ih) * p.in_width + iw) * p.in_channels + ci,
                        ((co * p.kernel_height + kh) * p.kernel_width + kw) * p.in_channels + ci,
                        ((n * p.OutHeight() + oh) * p.OutWidth() + ow) * p.out_channels + co);
                }
            }
  }
  static size_t OutChannels(const Conv2dProblem& p) { return p.out_channels; }
};
using Arrays = ConvolutionArrays<Conv2dCalls>;

class Conv2dTest : public ConvolutionTest {
 protected:
  Conv2dTest() : ConvolutionTest(kSeed) {}

  Conv2dProblem RandomProblem() {
    static constexpr int64_t kChannels[] = {1, 2, 3, 5, 7, 8, 9, 16, 17, 20, 24, 25, 33, 50};
    for (;;) {
      Conv2dProblem p = {.batch = Uniform(0, 3) == 0 ? Uniform(8, 9) : Uniform(1, 3),
                         .in_height = Uniform(1, 14),
                         .in_width = Uniform(1, 14),
                         .in_channels = kChannels[Uniform(0, std::size(kChannels) - 1)],
                         .out_channels = kChannels[Uniform(0, std::size(kChannels) - 1)],
                         .kernel_height = Uniform(1, 5),
                         .kernel_width = Uniform(1, 5)};
      if (Uniform(0, 2) == 0) p.stride_height = Uniform(1, 3), p.stride_width = Uniform(1, 3);
      if (Uniform(0, 1) == 0) {
        p.pad_top = Uniform(0, 3), p.pad_bottom = Uniform(0, 3);
        p.pad_left = Uniform(0, 3), p.pad_right = Uniform(0, 3);
      }
      if (Uniform(0, 3) == 0) p.dilation_height = Uniform(1, 3), p.dilation_width = Uniform(1, 3);
      // Padding beyond the kernel, wide rows and deep filters now and then.
      if (Uniform(0, 19) == 0) p.pad_left = 7, p.pad_bottom = 6;
      if (Uniform(0, 19) == 0) p.in_width = Uniform(240, 600), p.batch = 1, p.in_height = 4;
      if (Uniform(0, 19) == 0) p.in_channels = Uniform(100, 500), p.batch = 1;
      if (Uniform(0, 19) == 0) {
        p.in_channels = 8 * Uniform(24, 30), p.out_channels = Uniform(128, 150);
        p.batch = 2, p.in_height = Uniform(1, 6), p.in_width = Uniform(1, 6);
      }
      if (p.OutHeight() >= 1 && p.OutWidth() >= 1) return p;
    }
  }
};

std::string Describe(const Conv2dProblem& p, int round) {
  return (testing::Message() << "seed " << kSeed << " round " << round << ": " << p.batch << "x"
                             << p.in_height << "x" << p.in_width << "x" << p.in_channels << " to "
                             << p.out_channels << ", kernel " << p.kernel_height << "x"
                             << p.kernel_width << " stride " << p.stride_height << "x"
                             << p.stride_width << " pad " << p.pad_top << p.pad_bottom << p.pad_left
                             << p.pad_right << " dilation " << p.dilation_height << "x"
                             << p.dilation_width)
      .GetString();
}

TEST_P(Conv2dTest, RandomProblemsAgreeWithTheNaiveLoops) {
  for (int round = 0; round < 300; ++round) {
    const Conv2dProblem p = RandomProblem();
    SCOPED_TRACE(Describe(p, round));
    ExpectWhatNaiveLoopsGive<Conv2dCalls>(p);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conv2dTest, SameBitsForAnyPool) {
  for (int round = 0; round < 60; ++round) {
    Conv2dProblem p = RandomProblem();
    p.batch = Uniform(1, 20);
    if (round % 10 == 0) p.in_height = 40, p.in_width = 30;
    SCOPED_TRACE(Describe(p, round));
    ExpectSameBitsForAnyPool<Conv2dCalls>(p);
    if (HasFatalFailure()) return;
  }
}

// What training in slices of the batch counts on (ndarray/kernel/example_sums.h).
TEST_P(Conv2dTest, SlicesOfTheBatchGiveTheBitsOfTheWhole) {
  WorkerPool pool(3);
  for (int round = 0; round < 80; ++round) {
    Conv2dProblem p = RandomProblem();
    p.batch = Uniform(1, 20);
    if (round % 10 == 0) p.in_height = 40, p.in_width = 30;
    SCOPED_TRACE(Describe(p, round));
    const int64_t at_once = PlanesSummedAtOnce(p.OutHeight(), p.OutWidth());
    const int64_t slice = at_once * Uniform(1, 3);
    Arrays whole(p, random_);
    GuardedArray scratch(
        std::max({Conv2dForwardScratchBytes(p, 3), Conv2dGradInputScratchBytes(p, 3),
                  Conv2dGradFilterScratchBytes(p, 3)}) /
        sizeof(float));
    const auto run = [&](const Conv2dProblem& part, int64_t first, bool adds, GuardedArray& y,
                         GuardedArray& dx, GuardedArray& dfilter, ThreadPool* of) {
      const int64_t in = first * p.in_height * p.in_width * p.in_channels;
      const int64_t out = first * p.OutHeight() * p.OutWidth() * p.out_channels;
      Conv2dForward(part, whole.x.data() + in, whole.filter.data(), whole.bias.data(), true,
                    y.data() + out, scratch.data(), of);
      Conv2dGradInput(part, whole.dy.data() + out, whole.filter.data(), dx.data() + in,
                      scratch.data(), of);
      Conv2dGradFilter(part, whole.x.data() + in, whole.dy.data() + out, dfilter.data(), adds,
                       scratch.data(), of);
    };
    run(p, 0, false, whole.y, whole.dx, whole.dfilter, round % 2 == 0 ? &pool : nullptr);
    GuardedArray y(whole.y.size()), dx(whole.dx.size()), dfilter(whole.dfilter.size());
    for (int64_t first = 0; first < p.batch; first += slice) {
      Conv2dProblem part = p;
      part.batch = std::min(slice, p.batch - first);
      run(part, first, first > 0, y, dx, dfilter, round % 3 == 0 ? &pool : nullptr);
    }
    const auto same = [](const GuardedArray& a, const GuardedArray& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    ASSERT_TRUE(same(y, whole.y));
    ASSERT_TRUE(same(dx, whole.dx));
    ASSERT_TRUE(same(dfilter, whole.dfilter)) << "slices of " << slice;
  }
}

TEST_P(Conv2dTest, NanReachesWhatItTouchesAndNothingElse) {
  const Conv2dProblem p = {.batch = 1,
                           .in_height = 6,
                           .in_width = 6,
                           .in_channels = 3,
                           .out_channels = 10,
                           .kernel_height = 3,
                           .kernel_width = 3,
                           .pad_top = 1,
                           .pad_bottom = 1,
                           .pad_left = 1,
                           .pad_right = 1};
  Arrays arrays(p, random_);
  arrays.x[0] = kNan;  // channel 0 of pixel (0, 0)
  GuardedArray scratch(Conv2dForwardScratchBytes(p, 1) / sizeof(float));
  Conv2dForward(p, arrays.x.data(), arrays.filter.data(), nullptr, true, arrays.y.data(),
                scratch.data(), nullptr);
  for (int64_t i = 0; i < 36; ++i) {
    const bool touched = i / 6 <= 1 && i % 6 <= 1;
    EXPECT_EQ(std::isnan(arrays.y[i * 10]), touched) << "pixel " << i;
  }
  GuardedArray weights(Conv2dGradFilterScratchBytes(p, 1) / sizeof(float));
  Conv2dGradFilter(p, arrays.x.data(), arrays.dy.data(), arrays.dfilter.data(), false,
                   weights.data(), nullptr);
  // Filter positions (0, 0), (0, 1), (1, 0), (1, 1) of channel 0 meet pixel (0, 0). The others see
  // zeros or other pixels.
  EXPECT_TRUE(std::isnan(arrays.dfilter[0]));
  EXPECT_FALSE(std::isnan(arrays.dfilter[1]));
  EXPECT_FALSE(std::isnan(arrays.dfilter[8 * 3]));
}

TEST_P(Conv2dTest, EmptyBatch) {
  const Conv2dProblem p = {.batch = 0,
                           .in_height = 5,
                           .in_width = 5,
                           .in_channels = 2,
                           .out_channels = 3,
                           .kernel_height = 3,
                           .kernel_width = 3};
  Arrays arrays(p, random_);
  const float old = arrays.dfilter[5];
  GuardedArray scratch(Conv2dGradFilterScratchBytes(p, 2) / sizeof(float));
  Conv2dForward(p, nullptr, arrays.filter.data(), nullptr, false, nullptr, nullptr, nullptr);
  Conv2dGradInput(p, nullptr, arrays.filter.data(), nullptr, nullptr, nullptr);
  Conv2dGradFilter(p, nullptr, nullptr, arrays.dfilter.data(), true, scratch.data(), nullptr);
  EXPECT_EQ(arrays.dfilter[5], old);
  Conv2dGradFilter(p, nullptr, nullptr, arrays.dfilter.data(), false, scratch.data(), nullptr);
  EXPECT_EQ(arrays.dfilter[5], 0.0f);
}

TEST_P(Conv2dTest, ImpossibleProblemsAreRefused) {
  const Conv2dProblem good = {.batch = 1,
                              .in_height = 4,
                              .in_width = 4,
                              .in_channels = 1,
                              .out_channels = 1,
                              .kernel_height = 3,
                              .kernel_width = 3};
  Conv2dProblem wide = good, still = good, negative = good;
  wide.kernel_width = 5, still.stride_height = 0, negative.pad_left = -1;
  const float value = 0;
  float out = 7.0f;
  for (const Conv2dProblem& bad : {wide, still, negative}) {
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { Conv2dForward(bad, &value, &value, nullptr, false, &out, nullptr, nullptr); },
             [&] { Conv2dGradInput(bad, &value, &value, &out, nullptr, nullptr); },
             [&] { Conv2dGradFilter(bad, &value, &value, &out, false, nullptr, nullptr); },
             [&] { (void)Conv2dForwardScratchBytes(bad, 1); }}) {
      try {
        call();
        FAIL() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_NE(error.message().find("1x4x4x1, kernel 3x"), std::string::npos);
      }
    }
  }
  EXPECT_THROW(Conv2dForward(good, nullptr, &value, nullptr, false, &out, nullptr, nullptr), Error);
  EXPECT_EQ(out, 7.0f);
}

std::vector<const TileKernels*> Implementations() {
  const TileKernelsOfProcessor all = AllTileKernels();
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(Kernels, Conv2dTest, testing::ValuesIn(Implementations()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tidepool::cpu
