// oneDNN's convolutions on memory that ends where pages do, against plain loops in double.
#include "tidepool/backends/onednn/convolution.h"

#include <malloc.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/onednn/convolution_cache.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"

namespace tidepool::onednn {
namespace {

using cpu::GuardedArray;

constexpr uint32_t kSeed = 20240301;

int64_t OutSize(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads) {
  return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
}

ConvolutionShape RandomShape(std::mt19937_64& random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  ConvolutionShape s;
  s.kind = static_cast<ConvolutionKind>(draw(0, 2));
  s.batch = draw(1, 3);
  s.groups = draw(0, 4) == 0 ? draw(2, 4) : 1;
  const int64_t per_group = draw(0, 5) == 0 ? 1 : draw(1, 20);
  s.channels = s.groups * per_group;
  s.filters = s.groups * draw(1, 20);
  s.kernel_height = draw(1, 4), s.kernel_width = draw(0, 2) == 0 ? s.kernel_height : draw(1, 4);
  s.stride_height = draw(1, 2), s.stride_width = draw(1, 2);
  s.dilation_height = draw(1, 2), s.dilation_width = draw(1, 2);
  s.pad_top = draw(0, 1), s.pad_bottom = draw(0, 1);
  s.pad_left = draw(0, 1), s.pad_right = draw(0, 1);
  s.in_height = draw(7, 14), s.in_width = draw(7, 14);
  s.out_height = OutSize(s.in_height, s.kernel_height, s.stride_height, s.dilation_height,
                         s.pad_top + s.pad_bottom);
  s.out_width = OutSize(s.in_width, s.kernel_width, s.stride_width, s.dilation_width,
                        s.pad_left + s.pad_right);
  if (s.kind == ConvolutionKind::kForward) s.bias = draw(0, 1), s.relu = draw(0, 1);
  return s;
}

// visit(input, filter, output element) for each product of the convolution.
template <typename Visit>
void ForEachProduct(const ConvolutionShape& s, const Visit& visit) {
  const int64_t per_group = s.channels / s.groups, filters_per_group = s.filters / s.groups;
  int64_t out = 0;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t i = 0; i < s.out_height; ++i)
      for (int64_t j = 0; j < s.out_width; ++j)
        for (int64_t f = 0; f < s.filters; ++f, ++out)
          for (int64_t r = 0; r < s.kernel_height; ++r)
            for (int64_t q = 0; q < s.kernel_width; ++q) {
              const int64_t row = i * s.stride_height + r * s.dilation_height - s.pad_top;
              const int64_t column = j * s.stride_width + q * s.dilation_width - s.pad_left;
              if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
              for (int64_t c = 0; c < per_group; ++c) {
                visit(((n * s.in_height + row) * s.in_width + column) * s.channels +
                          f / filters_per_group * per_group + c,
                      ((f * s.kernel_height + r) * s.kernel_width + q) * per_group + c, out);
              }
            }
}

void ExpectNear(const GuardedArray& actual, const std::vector<double>& expected, const char* what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-4) << what << ", element " << i;
  }
  EXPECT_TRUE(actual.FrontIntact()) << what;
}

size_t Floats(size_t bytes) { return (bytes + 63) / 64 * 16; }

void CheckShape(const ConvolutionShape& s, const Convolution& convolution,
                std::mt19937_64& random) {
  GuardedArray input(s.InputElements()), filter(s.FilterElements()), output(s.OutputElements());
  GuardedArray bias(s.filters);
  GuardedArray own_filter(Floats(convolution.filter_bytes()));
  GuardedArray scratchpad(Floats(convolution.scratchpad_bytes()) + 16);
  for (GuardedArray* array : {&input, &filter, &output, &bias, &own_filter, &scratchpad}) {
    array->Randomize(random);
  }
  if (s.kind == ConvolutionKind::kForward) {
    std::vector<double> expected(s.OutputElements());
    ForEachProduct(s, [&](int64_t in, int64_t w, int64_t out) {
      expected[out] += double{input[in]} * filter[w];
    });
    for (size_t i = 0; i < expected.size(); ++i) {
      if (s.bias != 0) expected[i] += bias[i % s.filters];
      if (s.relu != 0) expected[i] = std::fmax(expected[i], 0);
    }
    convolution.ImportFilter(filter.data(), own_filter.data(), scratchpad.data());
    convolution.Forward(input.data(), own_filter.data(), s.bias != 0 ? bias.data() : nullptr,
                        output.data(), scratchpad.data());
    ExpectNear(output, expected, "forward");
  } else if (s.kind == ConvolutionKind::kGradInput) {
    std::vector<double> expected(s.InputElements());
    ForEachProduct(s, [&](int64_t in, int64_t w, int64_t out) {
      expected[in] += double{output[out]} * filter[w];
    });
    convolution.ImportFilter(filter.data(), own_filter.data(), scratchpad.data());
    convolution.GradInput(output.data(), own_filter.data(), input.data(), scratchpad.data());
    ExpectNear(input, expected, "gradient of the input");
  } else {
    std::vector<double> expected(s.FilterElements());
    ForEachProduct(s, [&](int64_t in, int64_t w, int64_t out) {
      expected[w] += double{input[in]} * output[out];
    });
    convolution.GradFilter(input.data(), output.data(), own_filter.data(), scratchpad.data());
    convolution.ExportFilter(own_filter.data(), filter.data(), false, scratchpad.data());
    ExpectNear(filter, expected, "gradient of the filter");
    convolution.ExportFilter(own_filter.data(), filter.data(), true, scratchpad.data());
    for (double& value : expected) value *= 2;
    ExpectNear(filter, expected, "added gradient of the filter");
  }
  EXPECT_TRUE(own_filter.FrontIntact());
  EXPECT_TRUE(scratchpad.FrontIntact());
}

TEST(ConvolutionTest, RandomShapesAreRightAndStayInTheirMemory) {
  std::mt19937_64 random(kSeed);
  std::printf("seed %u\n", kSeed);
  int made = 0;
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) {
    const ConvolutionShape s = RandomShape(random);
    SCOPED_TRACE(testing::Message()
                 << "case " << i << ": kind " << static_cast<int>(s.kind) << ", channels "
                 << s.channels << ", filters " << s.filters << ", groups " << s.groups
                 << ", kernel " << s.kernel_height << "x" << s.kernel_width);
    const auto convolution = Convolution::Make(s);
    if (convolution == nullptr) continue;
    ++made;
    CheckShape(s, *convolution, random);
  }
  EXPECT_GT(made, 250);
}

ConvolutionShape Square(int64_t size, int64_t filters) {
  ConvolutionShape s;
  s.batch = 1, s.channels = 8, s.filters = filters, s.kernel_height = s.kernel_width = 3;
  s.in_height = s.in_width = size, s.out_height = s.out_width = size - 2;
  return s;
}

TEST(ConvolutionTest, RefusesWhatOneDnnGetsWrong) {
  ConvolutionShape s = Square(9, 8);
  s.kernel_height = s.kernel_width = 1, s.stride_height = s.stride_width = 2;
  s.out_height = s.out_width = 5;
  EXPECT_EQ(Convolution::Make(s), nullptr);
}

TEST(ConvolutionTest, HeldBytesAreAboutWhatMallocGave) {
  std::vector<std::shared_ptr<const Convolution>> kept = {Convolution::Make(Square(8, 8))};
  int64_t held = 0;
  const auto before = mallinfo2();
  for (int64_t size = 9; size < 41; ++size) {
    kept.push_back(Convolution::Make(Square(size, 8)));
    held += kept.back()->held_bytes();
  }
  const auto after = mallinfo2();
  const double real = static_cast<double>(after.uordblks + after.hblkhd) -
                      static_cast<double>(before.uordblks + before.hblkhd);
  if (real <= 0) GTEST_SKIP() << "malloc does not count (a sanitizer's)";
  EXPECT_GT(held, 0.5 * real);
  EXPECT_LT(held, 2 * real);
}

TEST(ConvolutionCacheTest, IsBoundedCountedAndGivenBack) {
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t before = tracker.CurrentBytes(Host(), MemoryKind::kExternal);
  ConvolutionCache& cache = ConvolutionCache::Global();
  const auto first = cache.Find(Square(8, 1));
  EXPECT_EQ(cache.Find(Square(8, 1)), first);
  for (size_t i = 2; i <= ConvolutionCache::kMaxShapes + 20; ++i) {
    cache.Find(Square(8, static_cast<int64_t>(i)));
  }
  EXPECT_EQ(cache.size(), ConvolutionCache::kMaxShapes);
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kExternal) - before, cache.held_bytes());
  EXPECT_NE(cache.Find(Square(8, 1)), first);  // it had gone for others; ours still works

  const auto held = cache.Find(Square(8, 2));
  EXPECT_EQ(cache.Reclaim(ReclaimDepth::kSpare), 0);
  EXPECT_EQ(cache.Reclaim(ReclaimDepth::kPeriodic), 0);  // all of it was used since the start
  EXPECT_GT(Reclaimer::Global().RunNow(), 0);
  EXPECT_EQ(cache.size(), 1u) << "what a call holds stays";
  EXPECT_EQ(cache.Find(Square(8, 2)), held);
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kExternal) - before, cache.held_bytes());
}

}  // namespace
}  // namespace tidepool::onednn
