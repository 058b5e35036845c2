// Attention and its gradient on lengths around tiles, with masks, shared heads and rows that see nothing.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"

namespace tidepool::cuda {
namespace {

class CudaAttention : public CudaKernelTest {};

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr DType kF32 = DType::kFloat32;

struct Sizes {
  int64_t batch = 1, key_heads = 1, group = 1, queries = 1, keys = 1, width = 8, value_width = 8;
  Shape scores() const { return {batch, key_heads * group, queries, keys}; }
};

OpCase ForwardCase(DType dtype, const Sizes& s, const AttentionAttributes& attributes = {},
                   const Shape* mask = nullptr) {
  const DType statistics = dtype == DType::kFloat64 ? dtype : kF32;
  const int64_t heads = s.key_heads * s.group;
  OpCase c{OpCode::kAttention, dtype, {}, {}, {}, 2 + static_cast<double>(s.width) / 8};
  c.inputs = {RandomOperand(dtype, {s.batch, heads, s.queries, s.width}, 1),
              RandomOperand(dtype, {s.batch, s.key_heads, s.keys, s.width}, 2),
              RandomOperand(dtype, {s.batch, s.key_heads, s.keys, s.value_width}, 3),
              RandomOperand(dtype, mask != nullptr ? *mask : Shape{1, 1, 1, 1}, 4)};
  c.inputs[3].present = mask != nullptr;
  c.outputs = {ResultOperand(dtype, {s.batch, heads, s.queries, s.value_width}),
               ResultOperand(statistics, {s.batch, heads, s.queries})};
  c.attributes = attributes;
  return c;
}

// Of weights that add up to about 1.
OpCase GradientCase(DType dtype, const Sizes& s, const AttentionAttributes& attributes = {},
                    const Shape* mask = nullptr) {
  OpCase c = ForwardCase(dtype, s, attributes, mask);
  const Shape output = c.outputs[0].shape, rows = c.outputs[1].shape;
  OperandValues log_sums = RandomOperand(c.outputs[1].dtype, rows, 6);
  for (double& value : log_sums.reals) {
    value += 1 + std::log(1 + static_cast<double>(s.keys));
    if (log_sums.dtype == kF32) value = static_cast<float>(value);
  }
  c.op = OpCode::kAttentionGrad;
  c.inputs.push_back(RandomOperand(dtype, output, 5));
  c.inputs.push_back(log_sums);
  c.inputs.push_back(RandomOperand(dtype, output, 7));
  c.outputs.clear();
  for (int i = 0; i < 3; ++i) c.outputs.push_back(ResultOperand(dtype, c.inputs[i].shape));
  c.inner = 4 + static_cast<double>(s.width + s.value_width) / 4;
  return c;
}

void CheckBoth(DType dtype, const Sizes& s, const AttentionAttributes& attributes = {},
               const Shape* mask = nullptr) {
  SCOPED_TRACE(testing::Message() << s.queries << " queries, " << s.keys << " keys, width "
                                  << s.width << " and " << s.value_width << ", group " << s.group);
  OpCase forward = ForwardCase(dtype, s, attributes, mask);
  OpCase gradient = GradientCase(dtype, s, attributes, mask);
  if (DTypeBytes(dtype) == 2) {
    // Results are small sums of many terms: what the operator list allows 16-bit types would hide
    // all of them. log_sum_exp, which is f32, needs more room.
    forward.inner = 0.25;
    gradient.inner = 0.03;
  }
  CheckCase(forward);
  CheckCase(gradient);
}

AttentionAttributes Causal(int64_t first_query = 0) {
  AttentionAttributes a;
  a.causal = true;
  a.first_query = first_query;
  return a;
}

TEST_F(CudaAttention, RandomCases) {
  CheckRandomCases(OpCode::kAttention, 20);
  CheckRandomCases(OpCode::kAttentionGrad, 20);
}

TEST_F(CudaAttention, LengthsAroundTiles) {
  for (const DType dtype : kTypes) {
    for (const int64_t queries : {1, 65, 130}) {
      for (const int64_t keys : {1, 64, 129}) {
        CheckBoth(dtype, {1, 1, 1, queries, keys, 16, 16});
        CheckBoth(dtype, {1, 1, 1, queries, keys, 16, 16},
                  Causal(keys > queries ? keys - queries : 0));
      }
    }
  }
}

// Each of the kernels for a range of widths, and widths beside them.
TEST_F(CudaAttention, WidthsOfHeads) {
  for (const DType dtype : kTypes) {
    for (const int64_t width : {1, 32, 40, 64, 96, 128, 130, 200}) {
      CheckBoth(dtype, {1, 1, 1, 70, 67, width, width}, Causal());
    }
    CheckBoth(dtype, {1, 1, 1, 40, 50, 24, 150});
    CheckBoth(dtype, {1, 1, 1, 40, 50, 150, 24});
    CheckBoth(dtype, {1, 1, 1, 40, 50, 24, 0});
    CheckBoth(dtype, {1, 1, 1, 40, 0, 24, 24});
  }
}

TEST_F(CudaAttention, LongSequences) {
  CheckBoth(kF32, {1, 1, 1, 300, 1000, 32, 32});
  CheckBoth(kF32, {1, 1, 1, 513, 513, 64, 64}, Causal());
  CheckBoth(DType::kBFloat16, {1, 1, 1, 300, 270, 64, 64}, Causal());
  CheckBoth(DType::kFloat16, {1, 1, 1, 150, 500, 128, 128});
}

// Rows of a tile are of several heads, or of one head in the middle of its queries.
TEST_F(CudaAttention, HeadsThatShareKeys) {
  for (const DType dtype : kTypes) {
    for (const int64_t queries : {1, 70}) {
      CheckBoth(dtype, {2, 2, 3, queries, 80, 16, 24});
      CheckBoth(dtype, {2, 2, 3, queries, 80, 16, 24}, Causal(5));
    }
  }
}

TEST_F(CudaAttention, MasksOfEveryBroadcastShape) {
  const Sizes s{2, 1, 2, 35, 70, 16, 16};
  for (const DType dtype : kTypes) {
    for (const Shape& mask :
         {Shape{1, 1, 1, 70}, Shape{2, 1, 35, 1}, Shape{1, 2, 35, 70}, s.scores()}) {
      CheckBoth(dtype, s, {}, &mask);
      CheckBoth(dtype, s, Causal(3), &mask);
    }
  }
}

// Rows of which a mask leaves nothing, in tiles of rows that see all, and tiles of keys that nobody sees.
TEST_F(CudaAttention, RowsThatSeeNothing) {
  const Sizes s{1, 1, 2, 70, 150, 16, 16};
  const Shape mask{1, 1, 70, 150};
  for (const DType dtype : kTypes) {
    OpCase forward = ForwardCase(dtype, s, {}, &mask), gradient = GradientCase(dtype, s, {}, &mask);
    for (int64_t i = 0; i < 70; ++i) {
      for (int64_t j = 0; j < 150; ++j) {
        const bool seen = i % 3 != 0 && (j < 20 || j > 140);
        if (seen) continue;
        forward.inputs[3].reals[i * 150 + j] = -std::numeric_limits<double>::infinity();
        gradient.inputs[3].reals[i * 150 + j] = -std::numeric_limits<double>::infinity();
      }
      if (i % 3 != 0) continue;
      for (int64_t head = 0; head < 2; ++head) {
        gradient.inputs[5].reals[head * 70 + i] = -std::numeric_limits<double>::infinity();
      }
    }
    CheckCase(forward);
    CheckCase(gradient);
  }
}

// Beyond what an exponential holds; errors grow with the scores.
TEST_F(CudaAttention, LargeScores) {
  for (const DType dtype : {DType::kFloat64, kF32}) {
    for (const double scale : {60.0, -60.0}) {
      AttentionAttributes large;
      large.scale = scale;
      OpCase c = ForwardCase(dtype, {1, 1, 1, 70, 150, 16, 16}, large);
      c.inner *= 60;
      CheckCase(c);
    }
  }
}

// NaN stays in its row.
TEST_F(CudaAttention, NaNOfAQuery) {
  for (const DType dtype : kTypes) {
    OpCase c = ForwardCase(dtype, {1, 1, 1, 70, 90, 16, 16}, Causal(30));
    c.inputs[0].reals[65 * 16 + 3] = std::numeric_limits<double>::quiet_NaN();
    CheckCase(c);
  }
}

}  // namespace
}  // namespace tidepool::cuda
