#include "tidepool/backends/cpu/gemm/conv3d.h"

#include <string.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 330117;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t InputFloats(const Conv3dProblem& p) {
  return p.plane.batch * p.in_planes * p.plane.in_height * p.plane.in_width * p.plane.in_channels;
}
size_t OutputFloats(const Conv3dProblem& p) {
  return p.plane.batch * p.OutPlanes() * p.plane.OutHeight() * p.plane.OutWidth() *
         p.plane.out_channels;
}
size_t FilterFloats(const Conv3dProblem& p) {
  return p.plane.out_channels * p.kernel_planes * p.plane.kernel_height * p.plane.kernel_width *
         p.plane.in_channels;
}

// Calls visit(index of x, index of filter, index of y) for every product of the convolution.
template <typename Visit>
void ForEachProduct(const Conv3dProblem& problem, Visit visit) {
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
            const size_t ix =
                (((n * problem.in_planes + d) * p.in_height + h) * p.in_width + w) * p.in_channels;
            for (int64_t co = 0; co < p.out_channels; ++co)
              for (int64_t ci = 0; ci < p.in_channels; ++ci)
                visit(ix + ci, (co * taps + tap) * p.in_channels + ci, iy + co);
          }
}

struct Sum {
  double value = 0, magnitude = 0;
  int64_t count = 0;
  void Add(double term) { value += term, magnitude += std::abs(term), ++count; }
};

void ExpectNear(const char* what, const std::vector<Sum>& expected, const GuardedArray& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Sum& sum = expected[i];
    const double bound =
        (sum.count + 3) * sum.magnitude * std::numeric_limits<float>::epsilon() / 2;
    ASSERT_LE(std::abs(found[i] - sum.value), bound)
        << what << " at " << i << ": found " << found[i] << ", expected " << sum.value;
  }
  ASSERT_TRUE(found.FrontIntact()) << what;
}

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

struct Arrays {
  Arrays(const Conv3dProblem& p, std::mt19937_64& random)
      : x(InputFloats(p)),
        filter(FilterFloats(p)),
        bias(p.plane.out_channels),
        y(OutputFloats(p)),
        dy(OutputFloats(p)),
        dx(InputFloats(p)),
        dfilter(FilterFloats(p)) {
    for (GuardedArray* array : {&x, &filter, &bias, &dy, &dfilter}) array->Randomize(random);
    y.Fill(kNan), dx.Fill(kNan);
  }
  // What is computed, on scratch of NaN.
  void Run(const Conv3dProblem& p, bool with_bias, bool relu, bool accumulate, int threads,
           ThreadPool* pool) {
    GuardedArray forward(Conv3dForwardScratchBytes(p, threads) / sizeof(float));
    GuardedArray input(Conv3dGradInputScratchBytes(p, threads) / sizeof(float));
    GuardedArray weights(Conv3dGradFilterScratchBytes(p, threads) / sizeof(float));
    for (GuardedArray* scratch : {&forward, &input, &weights}) {
      ASSERT_EQ(scratch->size() % 16, 0u);
      scratch->Fill(kNan);
    }
    Conv3dForward(p, x.data(), filter.data(), with_bias ? bias.data() : nullptr, relu, y.data(),
                  forward.data(), pool);
    Conv3dGradInput(p, dy.data(), filter.data(), dx.data(), input.data(), pool);
    Conv3dGradFilter(p, x.data(), dy.data(), dfilter.data(), accumulate, weights.data(), pool);
    for (const GuardedArray* scratch : {&forward, &input, &weights})
      ASSERT_TRUE(scratch->FrontIntact());
  }
  GuardedArray x, filter, bias, y, dy, dx, dfilter;
};

class Conv3dTest : public testing::TestWithParam<const TileKernels*> {
 protected:
  Conv3dTest() : random_(kSeed) { ForceTileKernelsForTesting(GetParam()); }
  ~Conv3dTest() override { ForceTileKernelsForTesting(nullptr); }

  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

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

  std::mt19937_64 random_;
};

TEST_P(Conv3dTest, RandomProblemsAgreeWithTheNaiveLoops) {
  for (int round = 0; round < 300; ++round) {
    const Conv3dProblem p = RandomProblem();
    SCOPED_TRACE(Describe(p, round));
    Arrays arrays(p, random_);
    const bool has_bias = Uniform(0, 1), relu = Uniform(0, 2) == 0, accumulate = Uniform(0, 1);
    std::vector<Sum> y(arrays.y.size()), dx(arrays.dx.size()), dfilter(arrays.dfilter.size());
    for (size_t i = 0; i < y.size() && has_bias; ++i)
      y[i].Add(arrays.bias[i % p.plane.out_channels]);
    for (size_t i = 0; i < dfilter.size() && accumulate; ++i) dfilter[i].Add(arrays.dfilter[i]);
    ForEachProduct(p, [&](size_t ix, size_t iw, size_t iy) {
      y[iy].Add(double{arrays.x[ix]} * arrays.filter[iw]);
      dx[ix].Add(double{arrays.dy[iy]} * arrays.filter[iw]);
      dfilter[iw].Add(double{arrays.dy[iy]} * arrays.x[ix]);
    });
    for (Sum& sum : y) sum.value = relu ? std::max(sum.value, 0.0) : sum.value;
    arrays.Run(p, has_bias, relu, accumulate, 1, nullptr);
    ExpectNear("y", y, arrays.y);
    ExpectNear("dx", dx, arrays.dx);
    ExpectNear("dfilter", dfilter, arrays.dfilter);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conv3dTest, SameBitsForAnyPool) {
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int threads : {2, 3}) pools.push_back(std::make_unique<WorkerPool>(threads));
  for (int round = 0; round < 40; ++round) {
    Conv3dProblem p = RandomProblem();
    if (round % 4 == 0) p.plane.in_height = 20, p.plane.in_width = 17;
    SCOPED_TRACE(Describe(p, round));
    const uint64_t seed = random_();
    std::mt19937_64 once(seed);
    Arrays first(p, once);
    first.Run(p, true, false, true, 1, nullptr);
    for (size_t i = 0; i < pools.size(); ++i) {
      std::mt19937_64 again(seed);
      Arrays next(p, again);
      next.Run(p, true, false, true, static_cast<int>(i) + 2, pools[i].get());
      const auto same = [&](const GuardedArray& a, const GuardedArray& b) {
        return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
      };
      ASSERT_TRUE(same(first.y, next.y) && same(first.dx, next.dx) &&
                  same(first.dfilter, next.dfilter))
          << i + 2 << " threads";
    }
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
