// Every operator that has gradients, through a tape: random calls in f64 on the reference, views with gaps, some inputs watched
// and some not, gradients handed in or not. They are those that Gradients() computes with everything at hand; the tape has kept only
// what rows say is needed, and the caller has let go of all.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/gradient_plan.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

constexpr int kCases = 40;
constexpr int64_t kMostElements = 5000;

std::vector<OpCode> WithGradients() {
  std::vector<OpCode> ops;
  for (int op = 0; op < kOpCodes; ++op) {
    if (HasGradients(static_cast<OpCode>(op))) ops.push_back(static_cast<OpCode>(op));
  }
  return ops;
}

bool IsUsable(const OpCase& c) {
  if (c.op == OpCode::kScatter && c.attrs<ScatterAttributes>().reduction > ScatterReduction::kAdd)
    return false;
  for (const OperandValues& input : c.inputs) {
    if (input.shape.NumElements() > kMostElements) return false;
    for (const double value : input.reals) {
      if (!(std::abs(value) < 1e3)) return false;
    }
  }
  for (const OperandValues& output : c.outputs) {
    if (output.shape.NumElements() == 0) return false;
  }
  return c.outputs[0].dtype == DType::kFloat64;
}

void MakePlain(OpCase& c) {
  if (c.op != OpCode::kMatMul) return;
  MatMulAttributes a = c.attrs<MatMulAttributes>();
  a.accumulate = false;
  c.attributes = a;
}

// The same values, in every other column of a wider array.
NDArray WithGaps(const NDArray& x) {
  if (x.rank() == 0) return x.Dup();
  std::vector<int64_t> dims(x.shape().span().begin(), x.shape().span().end());
  dims.back() = 2 * dims.back() + 1;
  NDArray wide = Full(Shape(dims), 7, x.dtype());
  NDArray view = wide.Slice(x.rank() - 1, 0, 2 * x.dim(x.rank() - 1), 2);
  CopyInto(x, view);
  return view;
}

class TapedRow : public testing::TestWithParam<OpCode> {};

TEST_P(TapedRow, GivesWhatGradientsGives) {
  const OpCode op = GetParam();
  const OperatorInfo& info = Info(op);
  const uint32_t flows = PlanOf(op).flows;
  const ScopedProvider reference("reference");
  std::mt19937_64 random(20261125);
  int cases = 0, compared = 0, refused = 0;
  for (int drawn = 0; cases < kCases && drawn < 200 * kCases; ++drawn) {
    OpCase c = MakeOpCase(op, DType::kFloat64, random);
    if (!IsUsable(c)) continue;
    MakePlain(c);
    ++cases;
    std::vector<NDArray> x, z, dz;
    for (const OperandValues& input : c.inputs) {
      NDArray array = ArrayOf(input, Place::Heap());
      x.push_back(random() % 3 == 0 ? WithGaps(array) : array);
    }
    for (const OperandValues& output : c.outputs) {
      z.push_back(NDArray(output.shape, output.dtype));
      dz.push_back(IsFloating(output.dtype)
                       ? RandomUniform(output.shape, -1, 1, output.dtype, random())
                       : NDArray());
    }
    std::vector<const NDArray*> inputs, outputs, gradients;
    std::vector<NDArray*> results;
    for (size_t i = 0; i < x.size(); ++i) inputs.push_back(c.inputs[i].present ? &x[i] : nullptr);
    for (size_t o = 0; o < z.size(); ++o) {
      outputs.push_back(&z[o]);
      results.push_back(&z[o]);
      gradients.push_back((flows >> o & 1) != 0 ? &dz[o] : nullptr);
    }
    std::vector<NDArray> destinations(x.size()), earlier(x.size());
    GradientTape tape;
    std::vector<size_t> watched;
    bool adds = false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (inputs[i] == nullptr || !IsFloating(x[i].dtype()) || x[i].NumElements() == 0 ||
          random() % 4 == 0)
        continue;
      destinations[i] = RandomUniform(x[i].shape(), -1, 1, x[i].dtype(), random());
      earlier[i] = destinations[i].Dup();
      adds = random() % 4 == 0;
      tape.Watch(x[i], destinations[i], adds ? GradientWrite::kAdd : GradientWrite::kReplace);
      if (!adds) earlier[i] = NDArray();
      watched.push_back(i);
    }
    Dispatch(op, inputs, absl::MakeConstSpan(results), c.attributes.get());
    const std::vector<NDArray> expected =
        Gradients(op, inputs, outputs, gradients, c.attributes.get());
    bool flows_to_watched = false, unwritten = false;
    for (const size_t i : watched) {
      flows_to_watched = flows_to_watched || expected[i].is_defined();
      unwritten = unwritten || !expected[i].is_defined();
    }
    if (!flows_to_watched && !unwritten) continue;
    std::vector<NDArray> of, with;
    for (size_t o = 0; o < z.size(); ++o) {
      if (gradients[o] == nullptr) continue;
      of.push_back(z[o]);
      with.push_back(dz[o].Dup());
    }
    std::vector<Shape> shapes;
    for (NDArray& array : x) {
      shapes.push_back(array.shape());
      array = NDArray();
    }
    z.clear();
    dz.clear();
    if (unwritten) {
      // Of targets and masks: no silent zeros.
      EXPECT_EQ(CatchStatus([&] { tape.Backward(of, with); }).code(),
                absl::StatusCode::kUnimplemented)
          << c.ToString();
      ++refused;
      continue;
    }
    tape.Backward(of, with);
    for (const size_t i : watched) {
      const std::string what =
          c.ToString() + ", with respect to " + OperandName(info.inputs, static_cast<int>(i));
      ASSERT_EQ(destinations[i].shape(), shapes[i]) << what;
      NDArray sum = expected[i].is_defined() ? expected[i] : Zeros(shapes[i], DType::kFloat64);
      if (earlier[i].is_defined()) sum = earlier[i] + sum;
      const std::vector<double> found = destinations[i].ToVector<double>(),
                                right = sum.ToVector<double>();
      for (size_t e = 0; e < found.size(); ++e) {
        if ((std::isnan(right[e]) && std::isnan(found[e])) || right[e] == found[e]) continue;
        ASSERT_NEAR(found[e], right[e], 1e-11 * (1 + std::abs(right[e])))
            << what << ", element " << e;
      }
      ++compared;
    }
  }
  EXPECT_EQ(cases, kCases);
  EXPECT_GT(compared, kCases / 8);
  EXPECT_TRUE(refused == 0 || info.input_count > 1);
}

INSTANTIATE_TEST_SUITE_P(Operators, TapedRow, testing::ValuesIn(WithGradients()),
                         [](const auto& info) { return std::string(Info(info.param).name); });

}  // namespace
}  // namespace tidepool
