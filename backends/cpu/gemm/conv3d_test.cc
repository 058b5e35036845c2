#include "tidepool/backends/cpu/gemm/conv3d.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/convolution_arrays.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/memory/error.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 330117;

struct Conv3dCalls {
  using Problem = Conv3dProblem;
  static constexpr auto kForward = &Conv3dForward;
  static constexpr auto kGradInput = &Conv3dGradInput;
  static constexpr auto kGradFilter = &Conv3dGradFilter;
  static constexpr auto kForwardBytes = &Conv3dForwardScratchBytes;
  static constexpr auto kGradInputBytes = &Conv3dGradInputScratchBytes;
  static constexpr auto kGradFilterBytes = &Conv3dGradFilterScratchBytes;

  static size_t InputFloats(const Conv3dProblem& p) {
    return p.plane.batch * p.in_planes * p.plane.in_height * p.plane.in_width * p.plane.in_channels;
  }
  static size_t OutputFloats(const Conv3dProblem& p) {
    return p.plane.batch * p.OutPlanes() * p.plane.OutHeight() * p.plane.OutWidth() *
           p.plane.out_channels;
  }
  static size_t FilterFloats(const Conv3dProblem& p) {
    return p.plane.out_channels * p.kernel_planes * p.plane.kernel_height * p.plane.kernel_width *
           p.plane.in_channels;
  }

  // Calls visit(index of x, index of filter, index of y) for every product of the convolution.
  template <typename Visit>
  static void ForEachProduct(const Conv3dProblem& problem, Visit visit) {
    const Conv2dProblem& p = problem.plane;
    const auto place = [](int64_t out, int64_t stride, int64_t tap, int64_t dilation, int64_t pad,
                          int64_t in) {
      const int64_t at = out * stride + tap * dilation - pad;
      return at < 0 || at >= in ? -1 : at;
    };
    const int64_t taps = problem.kernel_planes * p.kernel_height * p.kernel_width;
    size_t iy = 0;
    for (int64_t n = 0; n < p.batch; ++n)
      for (int64_t od = 0; od < problem.OutPlanes(); ++od)
        for (int64_t oh = 0; oh < p.OutHeight(); ++oh)
          for (int64_t ow = 0; ow < p.OutWidth(); ++ow, iy += p.out_channels)
            for (int64_t tap = 0; tap < taps; ++tap) {
              const int64_t d =
                  place(od, problem.stride_planes, tap / p.kernel_width / p.kernel_height,
                        problem.dilation_planes, problem.pad_front, problem.in_planes);
              const int64_t h = place(oh, p.stride_height, tap / p.kernel_width % p.kernel_height,
                                      p.dilation_height, p.pad_top, p.in_height);
              const int64_t w = place(ow, p.stride_width, tap % p.kernel_width, p.dilation_width,
                                      p.pad_left, p.in_width);
              if (d < 0 || h < 0 || w < 0) continue;
              const size_t ix = (((n * problem.in_planes + d) * p.in_height + h) * p.in_width + w) *
                                p.in_channels;
              for (int64_t co = 0; co < p.out_channels; ++co)
                for (int64_t ci = 0; ci < p.in_channels; ++ci)
                  visit(ix + ci, (co * taps + tap) * p.in_channels + ci, iy + co);
            }
  }
  static size_t OutChannels(const Conv3dProblem& p) { return p.plane.out_channels; }
};

std::string Describe(const Conv3dProblem& p, int round) {
  return (testing::Message() << "seed " << kSeed << " round " << round << ": " << p.plane.batch
                             << "x" << p.in_planes << "x" << p.plane.in_height << "x"
                             << p.plane.in_width << "x" << p.plane.in_channels << " to "
                             << p.plane.out_channels << ", kernel " << p.kernel_planes << "x"
                             << p.plane.kernel_height << "x" << p.plane.kernel_width << " stride "
                             << p.stride_planes << p.plane.stride_height << p.plane.stride_width
                             << " pad " << p.pad_front << p.pad_behind << p.plane.pad_top
                             << p.plane.pad_left << " dilation " << p.dilation_planes)
      .GetString();
}

class Conv3dTest : public ConvolutionTest {
 protected:
  Conv3dTest() : ConvolutionTest(kSeed) {}

  // Some planes of the output see nothing but padding, some of the filter's meet nothing.
  Conv3dProblem RandomProblem() {
    static constexpr int64_t kChannels[] = {1, 2, 3, 7, 8, 9, 16, 17, 33};
    for (;;) {
      Conv3dProblem p = {.plane = {.batch = Uniform(0, 3) == 0 ? Uniform(4, 6) : Uniform(1, 2),
                                   .in_height = Uniform(1, 9),
                                   .in_width = Uniform(1, 9),
                                   .in_channels = kChannels[Uniform(0, std::size(kChannels) - 1)],
                                   .out_channels = kChannels[Uniform(0, std::size(kChannels) - 1)],
                                   .kernel_height = Uniform(1, 3),
                                   .kernel_width = Uniform(1, 3)},
                         .in_planes = Uniform(1, 6),
                         .kernel_planes = Uniform(1, 4)};
      Conv2dProblem& plane = p.plane;
      if (Uniform(0, 2) == 0) plane.stride_height = Uniform(1, 2), plane.stride_width = 2;
      if (Uniform(0, 2) == 0) p.stride_planes = Uniform(1, 3);
      if (Uniform(0, 1) == 0) {
        plane.pad_top = Uniform(0, 2), plane.pad_bottom = Uniform(0, 2);
        plane.pad_left = Uniform(0, 2), plane.pad_right = Uniform(0, 2);
      }
      if (Uniform(0, 1) == 0) p.pad_front = Uniform(0, 5), p.pad_behind = Uniform(0, 5);
      if (Uniform(0, 3) == 0) p.dilation_planes = Uniform(1, 5), plane.dilation_width = 2;
      // Parts of the filter's gradient, and rows wider than its panels.
      if (Uniform(0, 19) == 0) plane.in_height = plane.in_width = 24, plane.batch = 1;
      if (Uniform(0, 19) == 0) plane.in_width = 300, plane.in_height = 3, plane.batch = 1;
      if (p.OutPlanes() >= 1 && plane.OutHeight() >= 1 && plane.OutWidth() >= 1) return p;
    }
  }
};

TEST_P(Conv3dTest, RandomProblemsAgreeWithTheNaiveLoops) {
  for (int round = 0; round < 300; ++round) {
    const Conv3dProblem p = RandomProblem();
    SCOPED_TRACE(Describe(p, round));
    ExpectWhatNaiveLoopsGive<Conv3dCalls>(p);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conv3dTest, SameBitsForAnyPool) {
  for (int round = 0; round < 40; ++round) {
    Conv3dProblem p = RandomProblem();
    if (round % 4 == 0) p.plane.in_height = 20, p.plane.in_width = 17;
    SCOPED_TRACE(Describe(p, round));
    ExpectSameBitsForAnyPool<Conv3dCalls>(p);
    if (HasFatalFailure()) return;
  }
}

TEST(Conv3dProblemTest, ImpossibleOnesAreRefusedByTheirPlanes) {
  Conv3dProblem deep = {.plane = {.batch = 1,
                                  .in_height = 4,
                                  .in_width = 4,
                                  .in_channels = 1,
                                  .out_channels = 1,
                                  .kernel_height = 3,
                                  .kernel_width = 3},
                        .in_planes = 2,
                        .kernel_planes = 3};
  try {
    (void)Conv3dForwardScratchBytes(deep, 1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find("found 2 planes, kernel 3"), std::string::npos)
        << error.message();
  }
  deep.pad_behind = 1;
  EXPECT_GT(Conv3dForwardScratchBytes(deep, 1), 0u);
  deep.stride_planes = 0;
  EXPECT_THROW((void)Conv3dGradFilterScratchBytes(deep, 1), Error);
}

std::vector<const TileKernels*> Implementations() {
  const TileKernelsOfProcessor all = AllTileKernels();
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(Kernels, Conv3dTest, testing::ValuesIn(Implementations()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tidepool::cpu
