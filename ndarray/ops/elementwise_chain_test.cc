// Chains against the operators one after the other: the same bits. Linked by the tests of several
// backends; runs on the device whose kernels are linked.
#include "tidepool/ndarray/ops/elementwise_chain.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/linked_device.h"

namespace tidepool {
namespace {

constexpr uint64_t kSeed = 20241122;
constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// A step of a chain and the operator it stands for.
struct Step {
  const char* name;
  int operand;  // 0: none, 1: Y, 2: W
  std::function<void(ElementwiseChain&)> take;
  std::function<NDArray(const NDArray& v, const NDArray& operand)> apply;
};

std::vector<Step> AllSteps() {
  std::vector<Step> steps;
  auto unary = [&](const char* name, std::function<void(ElementwiseChain&)> take,
                   std::function<NDArray(const NDArray&)> apply) {
    steps.push_back(
        {name, 0, std::move(take), [apply](const NDArray& v, const NDArray&) { return apply(v); }});
  };
  using C = ElementwiseChain;
  using N = const NDArray&;
  for (const ChainOperand o : {kChainY, kChainW}) {
    steps.push_back({"add", o, [o](C& c) { c.Add(o); }, [](N v, N w) { return v + w; }});
    steps.push_back({"subtract", o, [o](C& c) { c.Subtract(o); }, [](N v, N w) { return v - w; }});
    steps.push_back(
        {"subtract from", o, [o](C& c) { c.SubtractFrom(o); }, [](N v, N w) { return w - v; }});
    steps.push_back({"multiply", o, [o](C& c) { c.Multiply(o); }, [](N v, N w) { return v * w; }});
    steps.push_back({"divide", o, [o](C& c) { c.Divide(o); }, [](N v, N w) { return v / w; }});
    steps.push_back(
        {"divide into", o, [o](C& c) { c.DivideInto(o); }, [](N v, N w) { return w / v; }});
    steps.push_back(
        {"maximum", o, [o](C& c) { c.Maximum(o); }, [](N v, N w) { return Maximum(v, w); }});
    steps.push_back(
        {"minimum", o, [o](C& c) { c.Minimum(o); }, [](N v, N w) { return Minimum(v, w); }});
  }
  unary(
      "negate", [](C& c) { c.Negate(); }, [](N v) { return Negate(v); });
  unary(
      "abs", [](C& c) { c.Abs(); }, [](N v) { return Abs(v); });
  unary(
      "square", [](C& c) { c.Square(); }, [](N v) { return Square(v); });
  unary(
      "sqrt", [](C& c) { c.Sqrt(); }, [](N v) { return Sqrt(v); });
  unary(
      "exp", [](C& c) { c.Exp(); }, [](N v) { return Exp(v); });
  unary(
      "tanh", [](C& c) { c.Tanh(); }, [](N v) { return Tanh(v); });
  unary(
      "sigmoid", [](C& c) { c.Sigmoid(); }, [](N v) { return Sigmoid(v); });
  unary(
      "scale_shift", [](C& c) { c.ScaleShift(1.7, -0.3); },
      [](N v) { return ScaleShift(v, 1.7, -0.3); });
  unary(
      "clip", [](C& c) { c.Clip(-0.7, 1.9); }, [](N v) { return Clip(v, -0.7, 1.9); });
  unary(
      "relu", [](C& c) { c.Relu(); }, [](N v) { return Relu(v); });
  unary(
      "leaky_relu", [](C& c) { c.LeakyRelu(0.1); }, [](N v) { return LeakyRelu(v, 0.1); });
  unary(
      "elu", [](C& c) { c.Elu(0.9); }, [](N v) { return Elu(v, 0.9); });
  unary(
      "gelu", [](C& c) { c.Gelu(); }, [](N v) { return Gelu(v); });
  unary(
      "gelu tanh", [](C& c) { c.Gelu(GeluForm::kTanh); },
      [](N v) { return Gelu(v, GeluForm::kTanh); });
  unary(
      "swish", [](C& c) { c.Swish(); }, [](N v) { return Swish(v); });
  return steps;
}

// Any NaN is any NaN.
std::vector<uint64_t> Bits(const NDArray& array) {
  const NDArray wide = Cast(array.To(Host()), DType::kFloat64).Dup();
  std::vector<uint64_t> bits;
  for (const double value : wide.ToVector<double>()) {
    uint64_t word = ~uint64_t{0};
    if (!std::isnan(value)) std::memcpy(&word, &value, sizeof(word));
    bits.push_back(word);
  }
  return bits;
}

NDArray Random(const Shape& shape, DType dtype, uint64_t stream) {
  return Cast(RandomUniform(shape, -2, 2, kSeed, stream), dtype).To(LinkedDevice());
}

struct Program {
  ElementwiseChain chain;
  std::vector<const Step*> steps;
  bool uses_y = false, uses_w = false;
  std::string name;

  void Take(const Step& step) {
    step.take(chain);
    steps.push_back(&step);
    uses_y |= step.operand == 1, uses_w |= step.operand == 2;
    name += std::string(name.empty() ? "" : ", ") + step.name;
  }
  NDArray OneByOne(NDArray v, const NDArray& y, const NDArray& w) const {
    for (const Step* step : steps) v = step->apply(v, step->operand == 2 ? w : y);
    return v;
  }
};

void ExpectSame(const Program& p, const NDArray& x, const NDArray& y, const NDArray& w) {
  const NDArray actual = p.chain.Apply(x, p.uses_y ? &y : nullptr, p.uses_w ? &w : nullptr);
  const NDArray expected = p.OneByOne(x, y, w);
  ASSERT_EQ(actual.shape(), expected.shape()) << p.name;
  EXPECT_EQ(actual.dtype(), x.dtype());
  ASSERT_EQ(Bits(actual), Bits(expected))
      << p.name << ", " << DTypeName(x.dtype()) << " " << x.shape().ToString() << " "
      << y.shape().ToString() << " " << w.shape().ToString();
}

class ElementwiseChainTest : public testing::Test {
 protected:
  void SetUp() override {
    const Device device = LinkedDevice();
    if (device != Host() && FindDeviceProvider(device) == nullptr) {
      GTEST_SKIP() << DeviceName(device) << " is not there";
    }
  }
  const std::vector<Step> steps_ = AllSteps();
  // W only beside Y.
  Program Draw(std::mt19937& random, int count) {
    Program program;
    while (static_cast<int>(program.steps.size()) < count) {
      const Step& step = steps_[random() % steps_.size()];
      if (step.operand != 2 || program.uses_y) program.Take(step);
    }
    return program;
  }
};

TEST_F(ElementwiseChainTest, EachStepIsItsOperator) {
  for (const DType dtype : kTypes) {
    const NDArray x = Random({7, 33}, dtype, 1), y = Random({7, 33}, dtype, 2);
    for (const Step& step : steps_) {
      if (step.operand == 2) continue;
      Program program;
      program.Take(step);
      ExpectSame(program, x, y, y);
    }
  }
}

TEST_F(ElementwiseChainTest, RandomChainsOnRandomShapesGiveTheBitsOfTheOperators) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const Shape shapes[][3] = {{{}, {}, {}},
                             {{1}, {1}, {1}},
                             {{129}, {129}, {1}},
                             {{6, 10}, {10}, {6, 10}},
                             {{6, 10}, {6, 1}, {10}},
                             {{3, 1, 5}, {4, 1}, {2, 1, 1, 1}},
                             {{1, 8}, {9, 8}, {9, 1}},
                             {{2, 0, 3}, {3}, {2, 0, 3}},
                             {{3, 5000}, {5000}, {3, 5000}},
                             {{700, 9}, {9}, {700, 1}}};
  std::mt19937 random(kSeed);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kTypes[i % 4];
    const Shape(&shape)[3] = shapes[random() % std::size(shapes)];
    ExpectSame(Draw(random, 1 + static_cast<int>(random() % kMaxChainSteps)),
               Random(shape[0], dtype, 3 * i), Random(shape[1], dtype, 3 * i + 1),
               Random(shape[2], dtype, 3 * i + 2));
  }
}

TEST_F(ElementwiseChainTest, ViewsOfAnyStrides) {
  std::mt19937 random(kSeed + 1);
  for (int i = 0; i < 40; ++i) {
    const DType dtype = kTypes[i % 4];
    const NDArray x = Random({20, 31}, dtype, i).Transpose();
    const NDArray y = Random({31, 40}, dtype, i + 100).Slice(1, 0, 40, 2);
    const NDArray w = Random({20}, dtype, i + 200).BroadcastTo({31, 20});
    ExpectSame(Draw(random, 4), x, y, w);
  }
}

TEST_F(ElementwiseChainTest, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const NDArray values =
      FromValues(std::vector<float>{0, -0.0f, inf, -inf, NAN, 1e-40f, -1e-40f, 1, -1, 65504}, {10});
  for (const DType dtype : kTypes) {
    const NDArray x = Cast(values, dtype).To(LinkedDevice());
    const NDArray y = Cast(values.Reshape({10, 1}), dtype).To(LinkedDevice());
    for (const Step& step : steps_) {
      if (step.operand == 2) continue;
      Program program;
      program.Take(steps_[0]);  // add
      program.Take(step);
      ExpectSame(program, x, y, y);
    }
  }
}

TEST_F(ElementwiseChainTest, TheResultMayBeAnOperand) {
  std::mt19937 random(kSeed + 2);
  for (int i = 0; i < 60; ++i) {
    const DType dtype = kTypes[i % 4];
    Program program = Draw(random, 6);
    const NDArray x = Random({90, 101}, dtype, i), y = Random({90, 101}, dtype, i + 100),
                  w = Random({90, 101}, dtype, i + 200);
    const std::vector<uint64_t> expected = Bits(program.OneByOne(x, y, w));
    NDArray operands[3] = {x.Dup(), y.Dup(), w.Dup()};
    const int over = i % 3;
    if ((over == 1 && !program.uses_y) || (over == 2 && !program.uses_w)) continue;
    program.chain.ApplyInto(operands[0], program.uses_y ? &operands[1] : nullptr,
                            program.uses_w ? &operands[2] : nullptr, operands[over]);
    EXPECT_EQ(Bits(operands[over]), expected) << program.name << " over " << over;
  }
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.what();
  }
  return "nothing thrown";
}

TEST_F(ElementwiseChainTest, RefusesWhatMakesNoSense) {
  const NDArray x = Random({2, 3}, DType::kFloat32, 1), y = Random({3}, DType::kFloat32, 2);
  const ElementwiseChain add = ElementwiseChain().Add(kChainY);
  auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("Op [elementwise_chain]"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(MessageOf([&] {
           ElementwiseChain chain;
           for (int i = 0; i < 9; ++i) chain.Relu();
         }),
         "step relu would be number 9; a chain has at most 8");
  expect(MessageOf([] { ElementwiseChain().Clip(1, -1); }),
         "clip to [1, -1]; expected low <= high");
  expect(MessageOf([&] { ElementwiseChain().Apply(x); }), "the chain is empty");
  expect(MessageOf([&] { add.Apply(x); }), "Y is used by a step and was not given");
  expect(MessageOf([&] { ElementwiseChain().Relu().Apply(x, &y); }),
         "Y was given and no step uses it");
  expect(MessageOf([&] { ElementwiseChain().Add(kChainW).Apply(x, nullptr, &y); }),
         "W is used by a step and Y is not");
  const NDArray ints = Cast(x, DType::kInt32), doubles = Cast(y, DType::kFloat64);
  expect(MessageOf([&] { ElementwiseChain().Relu().Apply(ints); }), "X is i32, expected f32");
  expect(MessageOf([&] { add.Apply(x, &doubles); }), "Y");
  const NDArray four = Random({4}, DType::kFloat32, 3);
  EXPECT_NE(MessageOf([&] { add.Apply(x, &four); }), "nothing thrown");
  NDArray z = Random({3, 2}, DType::kFloat32, 3);
  expect(MessageOf([&] { add.ApplyInto(x, &y, nullptr, z); }), "Z");
  NDArray overlapping = Random({3, 3}, DType::kFloat32, 3);
  NDArray lower = overlapping.Slice(0, 1, 3);
  const NDArray upper = overlapping.Slice(0, 0, 2);
  EXPECT_NE(MessageOf([&] { ElementwiseChain().Relu().ApplyInto(upper, nullptr, nullptr, lower); }),
            "nothing thrown");
}

}  // namespace
}  // namespace tidepool
