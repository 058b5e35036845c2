// Gradients() of every operator whose row says that it has some, against central differences of the operator: random cases in
// f64 on the reference. The numbers of cases are multiplied by TIDEPOOL_CONTRACT_CASES.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/gradient_rules.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/composed_gradients.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/gradients.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

constexpr double kStep = 1e-5;
constexpr int64_t kMostElements = 3000;  // of an operand
constexpr int kElementsOfACase = 5;

int CaseCount() {
  const char* text = std::getenv("TIDEPOOL_CONTRACT_CASES");
  return std::max(1, static_cast<int>(25 * (text != nullptr ? std::atof(text) : 1)));
}

std::vector<OpCode> WithGradients() {
  std::vector<OpCode> ops;
  for (int op = 0; op < kOpCodes; ++op) {
    if (HasGradients(static_cast<OpCode>(op))) ops.push_back(static_cast<OpCode>(op));
  }
  return ops;
}

template <typename Attributes>
void DoNotAccumulate(OpCase& c) {
  Attributes a = c.attrs<Attributes>();
  a.accumulate = false;
  c.attributes = a;
}

// Not at a corner, and not where an argument's differences leave the domain.
void MakePlain(OpCase& c) {
  for (OperandValues& input : c.inputs) {
    for (double& value : input.reals) value = std::abs(value) < 4 * kStep ? 0.25 : value;
  }
  if (c.op == OpCode::kPower) {
    for (double& value : c.inputs[0].reals) value = std::abs(value) + 0.125;
  }
  if (c.op == OpCode::kMaxPool2d || c.op == OpCode::kAveragePool2d ||
      c.op == OpCode::kAveragePool2dGrad) {
    Pool2dAttributes a = c.attrs<Pool2dAttributes>();
    a.relu_grad = false;
    c.attributes = a;
  }
  if (c.op == OpCode::kConv2dGradFilter) DoNotAccumulate<Conv2dAttributes>(c);
  if (c.op == OpCode::kConv3dGradFilter) DoNotAccumulate<Conv3dAttributes>(c);
  if (c.op == OpCode::kMatMul) DoNotAccumulate<MatMulAttributes>(c);
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
    if (&output == &c.outputs[0] && output.dtype != DType::kFloat64)
      return false;  // of copies: to f64 only
  }
  return true;
}

// A call, and the loss: the sum of the outputs that gradients flow from, weighted.
class Forward {
 public:
  Forward(const OpCase& c, std::mt19937_64& random) : case_(c), weighs_(c.outputs.size()) {
    weighs_[0] = true;
    for (const GradientRule& rule : GradientRulesOf(c.op)) {
      for (const GradientOperand& operand : rule.inputs) {
        if (operand.from == GradientOperand::From::kOutputGradient)
          weighs_[static_cast<size_t>(operand.index)] = true;
      }
    }
    for (const OperandValues& input : c.inputs) x_.push_back(ArrayOf(input, Place::Heap()));
    for (const OperandValues& output : c.outputs) {
      z_.push_back(NDArray(output.shape, output.dtype));
      d_.push_back(NDArray(output.shape, DType::kFloat64));
      for (double *at = d_.back().mutable_data<double>(), *end = at + d_.back().NumElements();
           at != end; ++at) {
        *at =
            std::uniform_real_distribution<double>(0.25, 1)(random) * (random() % 2 == 0 ? 1 : -1);
      }
    }
    Run();
  }

  std::vector<NDArray> Gradients() const {
    std::vector<const NDArray*> outputs, gradients;
    for (size_t o = 0; o < z_.size(); ++o) {
      outputs.push_back(&z_[o]);
      gradients.push_back(weighs_[o] ? &d_[o] : nullptr);
    }
    return tidepool::Gradients(case_.op, Inputs(), outputs, gradients, case_.attributes.get());
  }

  // What the loss changes by when an element has another value, element by element of the outputs: a difference of sums
  // would lose the digits of small ones.
  double Change(size_t input, int64_t element, double from, double to) {
    double& value = x_[input].mutable_data<double>()[element];
    const double kept = value;
    value = from;
    Run();
    std::vector<NDArray> before;
    for (const NDArray& z : z_) before.push_back(z.Dup());
    value = to;
    Run();
    long double change = 0;
    for (size_t o = 0; o < z_.size(); ++o) {
      if (!weighs_[o]) continue;
      for (int64_t i = 0; i < z_[o].NumElements(); ++i) {
        const double difference = z_[o].data<double>()[i] - before[o].data<double>()[i];
        if (difference != 0)
          change += static_cast<long double>(difference) * d_[o].data<double>()[i];
      }
    }
    value = kept;
    return static_cast<double>(change);
  }
  const NDArray& x(size_t input) const { return x_[input]; }

 private:
  std::vector<const NDArray*> Inputs() const {
    std::vector<const NDArray*> inputs;
    for (size_t i = 0; i < x_.size(); ++i)
      inputs.push_back(case_.inputs[i].present ? &x_[i] : nullptr);
    return inputs;
  }
  void Run() {
    std::vector<NDArray*> outputs;
    for (size_t o = 0; o < z_.size() && Info(case_.op).updates(); ++o)
      CopyInto(ArrayOf(case_.outputs[o], Place::Heap()), z_[o]);
    for (NDArray& output : z_) outputs.push_back(&output);
    Dispatch(case_.op, Inputs(), absl::MakeConstSpan(outputs), case_.attributes.get());
  }

  const OpCase& case_;
  std::vector<bool> weighs_;
  std::vector<NDArray> x_, z_, d_;
};

struct Tally {
  int compared = 0, skipped = 0;
};

void CheckInput(Forward& forward, size_t input, const NDArray& gradient, std::mt19937_64& random,
                const std::string& what, Tally* tally) {
  ASSERT_EQ(forward.x(input).shape(), gradient.shape()) << what;
  const int64_t count = gradient.NumElements();
  for (int sample = 0; sample < kElementsOfACase && count > 0; ++sample) {
    const auto i = static_cast<int64_t>(random() % static_cast<uint64_t>(count));
    const double here = forward.x(input).data<double>()[i];
    const double right = forward.Change(input, i, here, here + kStep) / kStep;
    const double left = forward.Change(input, i, here - kStep, here) / kStep;
    const double numeric = forward.Change(input, i, here - kStep, here + kStep) / (2 * kStep);
    // A corner, a pole, or outside of the domain.
    if (!(std::abs(right - left) <= 2e-3 * (1 + std::abs(right)))) {
      ++tally->skipped;
      continue;
    }
    ++tally->compared;
    const double curvature =
        std::abs(right - left);  // that the difference itself is off by, near a pole
    EXPECT_NEAR(gradient.data<double>()[i], numeric,
                4e-7 * (1 + std::abs(numeric)) + 2e-3 * curvature)
        << what << ", element " << i;
  }
}

class Gradient : public testing::TestWithParam<OpCode> {};

TEST_P(Gradient, AgreesWithCentralDifferences) {
  const OpCode op = GetParam();
  const ScopedProvider reference("reference");
  std::mt19937_64 random(20261124);
  Tally tally;
  int cases = 0;
  for (int drawn = 0; cases < CaseCount() && drawn < 200 * CaseCount(); ++drawn) {
    OpCase c = MakeOpCase(op, DType::kFloat64, random);
    if (!IsUsable(c)) continue;
    MakePlain(c);
    Forward forward(c, random);
    const std::vector<NDArray> gradients = forward.Gradients();
    ASSERT_EQ(gradients.size(), c.inputs.size());
    int defined = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].is_defined()) continue;
      ++defined;
      CheckInput(
          forward, i, gradients[i].Dup(), random,
          c.ToString() + ", with respect to " + OperandName(Info(op).inputs, static_cast<int>(i)),
          &tally);
    }
    EXPECT_GT(defined, 0) << c.ToString();
    ++cases;
  }
  EXPECT_EQ(cases, CaseCount());
  EXPECT_GE(tally.compared, cases);
  EXPECT_LT(tally.skipped, 3 * tally.compared) << "of " << cases << " cases";
}

INSTANTIATE_TEST_SUITE_P(Operators, Gradient, testing::ValuesIn(WithGradients()),
                         [](const testing::TestParamInfo<OpCode>& info) {
                           return std::string(Info(info.param).name);
                         });

// Where a row says kComposed there is a function, and the other way round.
TEST(Gradients, RowsAndFunctionsAgree) {
  for (int code = 0; code < kOpCodes; ++code) {
    const auto op = static_cast<OpCode>(code);
    EXPECT_EQ(ComposedGradientOf(op) != nullptr,
              std::strcmp(Info(op).gradient, operator_list::kComposed) == 0)
        << Info(op).name;
  }
}

TEST(Gradients, RefusesWhatItCannotDo) {
  const NDArray x = Ones({3}), z = Ones({3}), wrong = Ones({2});
  const auto message = [](auto call) { return std::string(CatchStatus(call).message()); };
  EXPECT_EQ(
      message([&] { Gradients(OpCode::kFloor, {&x}, {&z}, {&z}); }),
      "Op [floor]: it has no gradients; its row says \"none\" (ndarray/kernel/operator_list.inc)");
  EXPECT_EQ(message([&] { Gradients(OpCode::kExp, {&x}, {&z}, {&wrong}); }),
            "Op [exp]: the gradient of output Z is f32 of shape [2], expected f32 of shape [3]");
  EXPECT_EQ(message([&] { Gradients(OpCode::kExp, {&x}, {nullptr}, {&z}); }),
            "Op [exp], gradients: output Z is missing, expected what the call computed");
  EXPECT_EQ(message([&] {
              Gradients(OpCode::kExp, {&x, &x}, {&z}, {&z});
            }),
            "Op [exp], gradients: found 2 inputs, expected 1");
  EXPECT_EQ(message([&] { Gradients(OpCode::kLeakyRelu, {&x}, {&z}, {&z}); }),
            "Op [leaky_relu], gradients: found attributes tidepool::NoAttributes, expected "
            "tidepool::AlphaAttributes");
  const NDArray probabilities = Ones({3, 3}), labels = Zeros({3}, DType::kInt64);
  EXPECT_EQ(message([&] {
              Gradients(OpCode::kSoftmaxCrossEntropy, {&probabilities, &labels},
                        {&z, &probabilities}, {&z, &probabilities});
            }),
            "Op [softmax_cross_entropy]: found a gradient of output probabilities, from which none "
            "is computed; "
            "expected null");
}

// Integers take part in a call, and nothing flows to them; broadcast operands get sums.
TEST(Gradients, TypesAndBroadcasting) {
  const NDArray x = Ones({2, 3}), y = Ones({3}), z = x * y, dz = Full({2, 3}, 2.0);
  const std::vector<NDArray> d = Gradients(OpCode::kMultiply, {&x, &y}, {&z}, {&dz});
  EXPECT_EQ(d[1].ToVector<float>(), std::vector<float>({4, 4, 4}));
  const NDArray i = Cast(x, DType::kInt32);
  const std::vector<NDArray> none = Gradients(OpCode::kMultiply, {&i, &i}, {&i}, {&i});
  EXPECT_FALSE(none[0].is_defined());
  EXPECT_FALSE(none[1].is_defined());
  const std::vector<NDArray> nothing = Gradients(OpCode::kMultiply, {&x, &y}, {&z}, {nullptr});
  EXPECT_FALSE(nothing[0].is_defined());
}

// ---- operators of one's own ----------------------------------------------------------------------------------------

OpCode Own(const char* name, const char* gradient) {
  return AddOperator({.name = name,
                      .inputs = "X",
                      .outputs = "Z",
                      .attributes = AttributesType::Of<AlphaAttributes>(),
                      .types = SetOf(DType::kFloat32),
                      .shape = ShapeRule::kLikeFirst,
                      .gradient = gradient,
                      .cost = operator_list::Each(3)});
}

TEST(Gradients, OfOnesOwn) {
  // By an operator that is added later; by a function; by neither.
  const OpCode by_operator = Own("own_half_relu", "own_half_relu_grad");
  const NDArray x = Ones({2}), dz = Full({2}, 3.0);
  const AlphaAttributes a{0.5};
  EXPECT_EQ(CatchStatus([&] { Gradients(by_operator, {&x}, {&x}, {&dz}, &a); }).message(),
            "operator \"own_half_relu\": found gradient \"own_half_relu_grad\", expected the name "
            "of an operator");
  const OpCode gradient = AddOperator({.name = "own_half_relu_grad",
                                       .inputs = "X,dZ",
                                       .outputs = "dX",
                                       .attributes = AttributesType::Of<AlphaAttributes>(),
                                       .types = SetOf(DType::kFloat32)});
  KernelRegistry::Global().Add(
      {gradient, DeviceType::kHost, DType::kFloat32, "reference", 0, [](const KernelCall& call) {
         for (int64_t i = 0; i < call.outputs[0].NumElements(); ++i) {
           call.outputs[0].as<float>()[i] = call.inputs[1].as<float>()[i] *
                                            static_cast<float>(call.attrs<AlphaAttributes>().alpha);
         }
       }});
  EXPECT_EQ(Gradients(by_operator, {&x}, {&x}, {&dz}, &a)[0].ToVector<float>(),
            std::vector<float>({1.5, 1.5}));

  const OpCode by_function = Own("own_twice", operator_list::kComposed);
  EXPECT_FALSE(HasGradients(by_function));
  AddGradient(by_function,
              [](const GradientCall& call) -> GradientResults { return {call.dz * 2}; });
  EXPECT_TRUE(HasGradients(by_function));
  EXPECT_EQ(Gradients(by_function, {&x}, {&x}, {&dz}, &a)[0].ToVector<float>(),
            std::vector<float>({6, 6}));
  const auto again = [&] {
    AddGradient(by_function, [](const GradientCall&) { return GradientResults(); });
  };
  EXPECT_EQ(CatchStatus(again).message(),
            "operator \"own_twice\": found a second function for its gradient, expected one");
  EXPECT_EQ(CatchStatus([&] {
              AddGradient(by_operator, [](const GradientCall&) { return GradientResults(); });
            }).code(),
            absl::StatusCode::kInvalidArgument);
  const OpCode unwritten = Own("own_unwritten", operator_list::kUnwritten);
  EXPECT_EQ(CatchStatus([&] { Gradients(unwritten, {&x}, {&x}, {&dz}, &a); }).code(),
            absl::StatusCode::kUnimplemented);
}

// Once for each that is returned, whoever asks.
TEST(Gradients, OfOnesOwnAreChecked) {
  static GradientResults returned;
  const OpCode op = AddOperator({.name = "own_of_two",
                                 .inputs = "X,Y",
                                 .outputs = "Z",
                                 .types = SetOf(DType::kFloat32),
                                 .gradient = operator_list::kComposed});
  AddGradient(op, [](const GradientCall&) -> GradientResults { return returned; });
  const NDArray x = Ones({4}), row = Ones({3, 1}), z = Ones({3, 4});
  const auto found = [&](NDArray of_x, NDArray of_row) {
    returned = {std::move(of_x), std::move(of_row)};
    return Gradients(op, {&x, &row}, {&z}, {&z});
  };
  // Of the inputs' shapes or the result's; of another floating type; none.
  const std::vector<NDArray> right = found(Ones({3, 4}), Ones({3, 1}, DType::kFloat64));
  EXPECT_EQ(right[0].ToVector<float>(), std::vector<float>({3, 3, 3, 3}));
  EXPECT_EQ(right[1].ToVector<float>(), std::vector<float>({1, 1, 1}));
  EXPECT_FALSE(found(NDArray(), Ones({3, 4}))[0].is_defined());
  const auto message = [&](NDArray of_x, NDArray of_row) {
    return std::string(CatchStatus([&] { found(of_x, of_row); }).message());
  };
  EXPECT_EQ(message(Ones({7}), Ones({3, 1})),
            "Op [own_of_two]: its gradient function returned f32 [7] on host for X, expected f32 "
            "[4] on host, or [3, 4] to "
            "be summed");
  for (const Shape& wrong : {Shape({1}), Shape({0}), Shape({}), Shape({4, 4}), Shape({2, 2}),
                             Shape({8}), Shape({4, 3})}) {
    EXPECT_NE(message(Ones(wrong), Ones({3, 1})).find("for X, expected f32 [4]"), std::string::npos)
        << wrong.ToString();
    EXPECT_NE(message(Ones({4}), Ones(wrong)).find("for Y, expected f32 [3, 1]"), std::string::npos)
        << wrong.ToString();
  }
  EXPECT_EQ(message(Ones({4}), Ones({3, 1}, DType::kInt64)),
            "Op [own_of_two]: its gradient function returned i64 [3, 1] on host for Y, expected "
            "f32 [3, 1] on host, or [3, 4] "
            "to be summed");
  NDArray closed = Ones({4});
  closed.Close();
  EXPECT_NE(message(closed, Ones({3, 1})).find("own_of_two"), std::string::npos);
  // No more than there are inputs.
  returned = {Ones({4}), Ones({3, 1}), NDArray()};
  EXPECT_EQ(CatchStatus([&] {
              Gradients(op, {&x, &row}, {&z}, {&z});
            }).message(),
            "Op [own_of_two]: its gradient function returned 3 gradients, expected at most 2, one "
            "for each input (X,Y)");
  // Of an input that does not broadcast to the result, only its own shape.
  const NDArray long_x = Ones({5});
  returned = {Ones({3, 4}), Ones({3, 1})};
  EXPECT_EQ(CatchStatus([&] {
              Gradients(op, {&long_x, &row}, {&z}, {&z});
            }).message(),
            "Op [own_of_two]: its gradient function returned f32 [3, 4] on host for X, expected "
            "f32 [5] on host");
  returned.clear();
}

}  // namespace
}  // namespace tidepool
