// Attention against softmax(q k^T) v made of operators in double; how much memory it takes; views, shared heads and
// texts that go on.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

NDArray Random(const Shape& shape, uint64_t stream, DType dtype = DType::kFloat32) {
  return Cast(RandomUniform(shape, -2, 2, 17, stream), dtype);
}

double LargestDifference(const NDArray& x, const NDArray& y) {
  return Max(Abs(Cast(x, DType::kFloat64) - Cast(y, DType::kFloat64))).Item<double>();
}

// Of one key head for each head. `mask` is added to the scores.
NDArray Naive(const NDArray& q, const NDArray& k, const NDArray& v, const NDArray& mask) {
  const auto wide = [](const NDArray& x) { return Cast(x, DType::kFloat64); };
  const NDArray scores =
      MatMul(wide(q), wide(k), {.transpose_y = true}) / std::sqrt(static_cast<double>(q.dim(3)));
  return MatMul(Softmax(scores + wide(mask), 3), wide(v));
}

NDArray CausalMask(int64_t queries, int64_t keys, int64_t first_query) {
  return Where(LowerTriangularMask(queries, keys, first_query), Zeros({}), Full({}, -INFINITY));
}

TEST(Attention, IsTheSoftmaxOfTheScoresTimesTheValues) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const NDArray q = Random({2, 3, 300, 40}, 1, dtype), k = Random({2, 3, 700, 40}, 2, dtype),
                  v = Random({2, 3, 700, 24}, 3, dtype);
    const double tolerance = dtype == DType::kFloat32 ? 2e-6 : 1e-14;
    EXPECT_LT(LargestDifference(Attention(q, k, v).output, Naive(q, k, v, Zeros({}))), tolerance);
    AttentionAttributes causal;
    causal.causal = true;
    causal.first_query = 400;
    EXPECT_LT(LargestDifference(Attention(q, k, v, causal).output,
                                Naive(q, k, v, CausalMask(300, 700, 400))),
              tolerance);
    const NDArray mask = Random({3, 1, 700}, 4, dtype);
    EXPECT_LT(LargestDifference(Attention(q, k, v, {}, &mask).output, Naive(q, k, v, mask)),
              tolerance);
    const NDArray seen = Greater(mask, Zeros({}, dtype));
    const NDArray added = Where(seen, Zeros({}, dtype), Full({}, -INFINITY, dtype));
    EXPECT_LT(LargestDifference(Attention(q, k, v, {}, &seen).output, Naive(q, k, v, added)),
              tolerance);
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const NDArray q = Random({1, 1, 20, 16}, 1) * 200, k = Random({1, 1, 600, 16}, 2),
                v = Random({1, 1, 600, 16}, 3);
  EXPECT_LT(LargestDifference(Attention(q, k, v).output, Naive(q, k, v, Zeros({}))), 1e-3);
}

TEST(Attention, HeadsShareKeys) {
  for (const int64_t queries : {1, 5, 200}) {
    const NDArray q = Random({2, 6, queries, 16}, 1), k = Random({2, 2, 300, 16}, 2),
                  v = Random({2, 2, 300, 16}, 3);
    const NDArray output = Attention(q, k, v).output;
    EXPECT_LT(LargestDifference(output, Naive(q, Repeat(k, 3, 1), Repeat(v, 3, 1), Zeros({}))),
              2e-6)
        << queries;
  }
}

TEST(Attention, ReadsAndWritesViewsWhereTheyLie) {
  const NDArray q = Random({2, 70, 4, 16}, 1), k = Random({2, 90, 2, 16}, 2),
                v = Random({2, 90, 2, 8}, 3);
  const auto heads = [](const NDArray& x) { return x.Transpose({0, 2, 1, 3}); };
  const Attended plain = Attention(heads(q).Dup(), heads(k).Dup(), heads(v).Dup());
  NDArray output = Empty({2, 70, 4, 8});
  Attended views{heads(output), Empty({2, 4, 70})};
  AttentionInto(heads(q), heads(k), heads(v), views);
  EXPECT_EQ(heads(output).Dup().ToVector<float>(), plain.output.ToVector<float>());
  const NDArray g = Random({2, 70, 4, 8}, 5);
  const AttentionGradients of_plain =
      AttentionGrad(heads(q).Dup(), heads(k).Dup(), heads(v).Dup(), plain, heads(g).Dup());
  AttentionGradients into{heads(Empty({2, 70, 4, 16})), heads(Empty({2, 90, 2, 16})),
                          heads(Empty({2, 90, 2, 8}))};
  AttentionGradInto(heads(q), heads(k), heads(v), views, heads(g), into);
  EXPECT_LT(LargestDifference(into.query, of_plain.query), 1e-6);
  EXPECT_LT(LargestDifference(into.key, of_plain.key), 1e-5);
  EXPECT_LT(LargestDifference(into.value, of_plain.value), 1e-5);
}

// A text token by token, by the keys of what came before, is the text at once.
TEST(Attention, GoesOnWhereATextStopped) {
  const NDArray q = Random({1, 2, 40, 16}, 1), k = Random({1, 2, 40, 16}, 2),
                v = Random({1, 2, 40, 16}, 3);
  AttentionAttributes causal;
  causal.causal = true;
  const NDArray whole = Attention(q, k, v, causal).output;
  for (int64_t at = 0; at < 40; at += 8) {
    causal.first_query = at;
    const NDArray part =
        Attention(q.Slice(2, at, at + 8), k.Slice(2, 0, at + 8), v.Slice(2, 0, at + 8), causal)
            .output;
    EXPECT_LT(LargestDifference(part, whole.Slice(2, at, at + 8)), 1e-6) << at;
  }
}

TEST(Attention, WhoSeesNothingGetsZeros) {
  const NDArray q = Random({1, 1, 2, 4}, 1), k = Random({1, 1, 3, 4}, 2);
  NDArray mask = Zeros({2, 3});
  for (int64_t i = 0; i < 3; ++i) mask.mutable_data<float>()[i] = -INFINITY;
  const Attended a = Attention(q, k, k, {}, &mask);
  EXPECT_EQ(Max(Abs(a.output.Slice(2, 0, 1))).Item<float>(), 0);
  EXPECT_EQ(a.log_sum_exp.ToVector<float>()[0], -INFINITY);
  EXPECT_GT(Max(Abs(a.output.Slice(2, 1, 2))).Item<float>(), 0);
  const AttentionGradients g = AttentionGrad(q, k, k, a, Ones({1, 1, 2, 4}), {}, &mask);
  EXPECT_EQ(Max(Abs(g.query.Slice(2, 0, 1))).Item<float>(), 0);
  EXPECT_TRUE(All(IsFinite(g.key)).Item<bool>());
}

TEST(Attention, ThreadsChangeNoBit) {
  const NDArray q = Random({1, 2, 300, 32}, 1), k = Random({1, 1, 1000, 32}, 2);
  std::vector<std::vector<float>> results[2];
  const int before = ThreadCount();
  for (int i = 0; i < 2; ++i) {
    SetThreadCount(i == 0 ? 1 : 4);
    const Attended a = Attention(q, k, k);
    const AttentionGradients g = AttentionGrad(q, k, k, a, q);
    for (const NDArray* x : {&a.output, &g.query, &g.key, &g.value})
      results[i].push_back(x->ToVector<float>());
  }
  SetThreadCount(before);
  EXPECT_EQ(results[0], results[1]);
}

// The scores of 8192 queries and keys are 256 MiB.
TEST(Attention, ScratchDoesNotGrowWithTheProductOfQueriesAndKeys) {
  for (const OpCode op : {OpCode::kAttention, OpCode::kAttentionGrad}) {
    const Kernel& kernel = KernelRegistry::Find(op, DeviceType::kHost, DType::kFloat32)[0];
    ASSERT_STREQ(kernel.provider, "cpu");
    const auto scratch = [&](int64_t length) {
      const int64_t dims[4] = {1, 1, length, 64}, strides[4] = {length * 64, length * 64, 64, 1};
      TensorRef refs[7];
      for (TensorRef& ref : refs) {
        ref.present = &ref != &refs[3];
        ref.rank = 4;
        ref.dims = dims;
        ref.strides = strides;
      }
      AttentionAttributes attributes;
      KernelCall call{op, absl::MakeSpan(refs, op == OpCode::kAttention ? 4 : 7),
                      absl::MakeSpan(refs, 3), &attributes};
      call.threads = 1;
      return static_cast<double>(kernel.scratch_bytes(call));
    };
    EXPECT_LT(scratch(8192), 20 << 20);
    EXPECT_LE(scratch(8192), 2.1 * scratch(4096));
  }
}

TEST(Attention, RefusesOperandsThatDoNotFit) {
  const auto message = [](const Shape& q, const Shape& k, const Shape& v, const Shape& m) {
    try {
      const NDArray mask = Zeros(m);
      Attention(Zeros(q), Zeros(k), Zeros(v), {}, &mask);
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message({1, 4, 3, 8}, {1, 3, 5, 8}, {1, 3, 5, 8}, {}),
            "Op [attention]: query has shape [1, 4, 3, 8], key has shape [1, 3, 5, 8]; expected a "
            "width of at least 1 "
            "and heads that are a multiple of key's");
  EXPECT_EQ(message({1, 4, 3, 8}, {1, 2, 5, 8}, {1, 2, 6, 8}, {}),
            "Op [attention]: value has shape [1, 2, 6, 8], expected [1, 2, 5, 8]");
  EXPECT_EQ(message({1, 4, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {3, 4}),
            "Op [attention]: mask has shape [3, 4], expected one that broadcasts to [1, 4, 3, 5]");
  EXPECT_EQ(message({4, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {}).substr(0, 33),
            "Op [attention]: query has shape [");
}

}  // namespace
}  // namespace tidepool
