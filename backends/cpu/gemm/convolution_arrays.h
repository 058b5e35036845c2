// What tests of convolutions of two and of three axes share: the arrays of a problem, guarded, what naive loops make of them,
// and tests of random problems. `Calls` is a struct of a convolution's functions, as Conv2dCalls of conv2d_test.cc.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CONVOLUTION_ARRAYS_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CONVOLUTION_ARRAYS_H_

#include <string.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {

struct NaiveSum {
  double value = 0, magnitude = 0;
  int64_t count = 0;
  void Add(double term) { value += term, magnitude += std::abs(term), ++count; }
};

inline void ExpectNear(const char* what, const std::vector<NaiveSum>& expected,
                       const GuardedArray& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const NaiveSum& sum = expected[i];
    const double bound = static_cast<double>(sum.count + 3) * sum.magnitude *
                         std::numeric_limits<float>::epsilon() / 2;
    ASSERT_LE(std::abs(found[i] - sum.value), bound)
        << what << " at " << i << ": found " << found[i] << ", expected " << sum.value;
  }
  ASSERT_TRUE(found.FrontIntact()) << what;
}

// Input, parameters and results of one problem.
template <typename Calls>
struct ConvolutionArrays {
  using Problem = typename Calls::Problem;

  ConvolutionArrays(const Problem& p, std::mt19937_64& random)
      : x(Calls::InputFloats(p)),
        filter(Calls::FilterFloats(p)),
        bias(Calls::OutChannels(p)),
        y(Calls::OutputFloats(p)),
        dy(Calls::OutputFloats(p)),
        dx(Calls::InputFloats(p)),
        dfilter(Calls::FilterFloats(p)) {
    for (GuardedArray* array : {&x, &filter, &bias, &dy, &dfilter}) array->Randomize(random);
    for (GuardedArray* array : {&y, &dx}) array->Fill(std::numeric_limits<float>::quiet_NaN());
  }
  // The convolution and its gradients, on scratch of NaN.
  void Run(const Problem& p, bool with_bias, bool relu, bool accumulate, int threads,
           ThreadPool* pool) {
    GuardedArray forward(Calls::kForwardBytes(p, threads) / sizeof(float));
    GuardedArray input(Calls::kGradInputBytes(p, threads) / sizeof(float));
    GuardedArray weights(Calls::kGradFilterBytes(p, threads) / sizeof(float));
    for (GuardedArray* scratch : {&forward, &input, &weights}) {
      ASSERT_EQ(scratch->size() % 16, 0u);
      scratch->Fill(std::numeric_limits<float>::quiet_NaN());
    }
    Calls::kForward(p, x.data(), filter.data(), with_bias ? bias.data() : nullptr, relu, y.data(),
                    forward.data(), pool);
    Calls::kGradInput(p, dy.data(), filter.data(), dx.data(), input.data(), pool);
    Calls::kGradFilter(p, x.data(), dy.data(), dfilter.data(), accumulate, weights.data(), pool);
    for (const GuardedArray* scratch : {&forward, &input, &weights})
      ASSERT_TRUE(scratch->FrontIntact());
  }
  void ExpectResultsOf(const ConvolutionArrays& other) const {
    const auto same = [](const GuardedArray& a, const GuardedArray& b) {
      return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    ASSERT_TRUE(same(y, other.y));
    ASSERT_TRUE(same(dx, other.dx));
    ASSERT_TRUE(same(dfilter, other.dfilter));
  }

  GuardedArray x, filter, bias, y, dy, dx, dfilter;
};

// Of random problems, by each table of tiles.
class ConvolutionTest : public testing::TestWithParam<const TileKernels*> {
 protected:
  explicit ConvolutionTest(uint64_t seed) : random_(seed) {
    ForceTileKernelsForTesting(GetParam());
  }
  ~ConvolutionTest() override { ForceTileKernelsForTesting(nullptr); }

  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  template <typename Calls>
  void ExpectWhatNaiveLoopsGive(const typename Calls::Problem& p) {
    ConvolutionArrays<Calls> arrays(p, random_);
    const bool has_bias = Uniform(0, 1), relu = Uniform(0, 2) == 0, accumulate = Uniform(0, 1);
    std::vector<NaiveSum> y(arrays.y.size()), dx(arrays.dx.size()), dfilter(arrays.dfilter.size());
    for (size_t i = 0; i < y.size() && has_bias; ++i)
      y[i].Add(arrays.bias[i % Calls::OutChannels(p)]);
    for (size_t i = 0; i < dfilter.size() && accumulate; ++i) dfilter[i].Add(arrays.dfilter[i]);
    Calls::ForEachProduct(p, [&](size_t ix, size_t iw, size_t iy) {
      y[iy].Add(double{arrays.x[ix]} * arrays.filter[iw]);
      dx[ix].Add(double{arrays.dy[iy]} * arrays.filter[iw]);
      dfilter[iw].Add(double{arrays.dy[iy]} * arrays.x[ix]);
    });
    for (NaiveSum& sum : y) sum.value = relu ? std::max(sum.value, 0.0) : sum.value;
    arrays.Run(p, has_bias, relu, accumulate, 1, nullptr);
    ExpectNear("y", y, arrays.y);
    ExpectNear("dx", dx, arrays.dx);
    ExpectNear("dfilter", dfilter, arrays.dfilter);
  }

  template <typename Calls>
  void ExpectSameBitsForAnyPool(const typename Calls::Problem& p) {
    const uint64_t seed = random_();
    std::mt19937_64 once(seed);
    ConvolutionArrays<Calls> first(p, once);
    first.Run(p, true, false, true, 1, nullptr);
    for (WorkerPool* const pool : {&one_, &two_, &three_}) {
      SCOPED_TRACE(testing::Message() << pool->threads() << " threads");
      std::mt19937_64 again(seed);
      ConvolutionArrays<Calls> next(p, again);
      next.Run(p, true, false, true, pool->threads(), pool);
      next.ExpectResultsOf(first);
    }
  }

  std::mt19937_64 random_;

 private:
  WorkerPool one_{1}, two_{2}, three_{3};
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CONVOLUTION_ARRAYS_H_
