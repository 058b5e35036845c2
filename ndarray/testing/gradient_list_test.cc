// Every gradient operator of the list against central differences of the operator it belongs to: random
// cases of the forward operator in f64, on the reference. The gradients are the reference's, or those of the
// device whose kernels are linked, skipped where there is none. The numbers of cases are multiplied by
// TIDEPOOL_CONTRACT_CASES.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/gradient_rules.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/linked_device.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

// One operator and one that computes gradients of it. The loss is the sum of the outputs times the gradients with respect
// to them that this takes, or, where it takes none (losses), its scale times the sum of the first output.
struct Row {
  OpCode forward;
  GradientRule rule;
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (int op = 0; op < kOpCodes; ++op) {
    for (const GradientRule& rule : GradientRulesOf(static_cast<OpCode>(op))) {
      rows.push_back({static_cast<OpCode>(op), rule});
    }
  }
  return rows;
}

// Any of the device, where it is not the host.
const char* Provider() { return LinkedDevice() == Host() ? "reference" : nullptr; }

constexpr double kStep = 1e-5;
constexpr int64_t kMostElements = 5000;  // of an operand: each difference runs the operator twice
constexpr int kElementsOfACase = 6;

using From = GradientOperand::From;

int CaseCount() {
  const char* text = std::getenv("TIDEPOOL_CONTRACT_CASES");
  return std::max(1, static_cast<int>(40 * (text != nullptr ? std::atof(text) : 1)));
}

// What is fused into the forward operator or told to the gradient is not part of this pair. Elements at
// 0 go where both sides of it are the same function.
void MakePlain(OpCase& c) {
  for (OperandValues& input : c.inputs) {
    for (double& value : input.reals) value = std::abs(value) < 4 * kStep ? 0.25 : value;
  }
  if (c.op == OpCode::kConv2d) {
    Conv2dAttributes a = c.attrs<Conv2dAttributes>();
    a.relu = a.accumulate = false;
    c.attributes = a;
  } else if (c.op == OpCode::kConv3d) {
    Conv3dAttributes a = c.attrs<Conv3dAttributes>();
    a.relu = a.accumulate = false;
    c.attributes = a;
  } else if (c.op == OpCode::kMaxPool2d || c.op == OpCode::kAveragePool2d) {
    Pool2dAttributes a = c.attrs<Pool2dAttributes>();
    a.relu_grad = false;
    c.attributes = a;
  }
}

bool IsUsable(const OpCase& c) {
  for (const OperandValues& input : c.inputs) {
    if (input.shape.NumElements() > kMostElements) return false;
    for (double value : input.reals) {
      if (!(std::abs(value) < 1e3)) return false;
    }
  }
  for (const OperandValues& output : c.outputs) {
    if (output.shape.NumElements() == 0) return false;
  }
  return true;
}

// One forward call, and the loss that `weights` (by output) make of it.
class Forward {
 public:
  Forward(const OpCase& c, std::mt19937_64& random, const Row& row) : case_(c) {
    for (const OperandValues& input : c.inputs)
      x.push_back(ArrayOf(input, Place::CurrentOn(Host())));
    for (const OperandValues& output : c.outputs) {
      z.push_back(NDArray(output.shape, output.dtype));
      d.push_back(NDArray(output.shape, output.dtype));
      for (double *at = d.back().mutable_data<double>(), *end = at + d.back().NumElements();
           at != end; ++at) {
        // Not near 0, where a corner would hardly be seen.
        *at =
            std::uniform_real_distribution<double>(0.25, 1)(random) * (random() % 2 == 0 ? 1 : -1);
      }
      weighs_.push_back(false);
    }
    scaled = row.rule.of_sum;
    for (const GradientOperand& operand : row.rule.inputs) {
      if (operand.from == From::kOutputGradient) weighs_[static_cast<size_t>(operand.index)] = true;
    }
    if (!scaled) return;
    weighs_[0] = true;
    double* const weights = d[0].mutable_data<double>();
    std::fill(weights, weights + d[0].NumElements(), kScale);
  }

  double Loss() {
    std::vector<const NDArray*> inputs;
    std::vector<NDArray*> outputs;
    for (size_t i = 0; i < x.size(); ++i)
      inputs.push_back(case_.inputs[i].present ? &x[i] : nullptr);
    for (NDArray& output : z) outputs.push_back(&output);
    Dispatch(case_.op, inputs, absl::MakeConstSpan(outputs), case_.attributes.get());
    long double sum = 0;
    for (size_t o = 0; o < z.size(); ++o) {
      if (!weighs_[o]) continue;
      const double* values = z[o].data<double>();
      const double* weights = d[o].data<double>();
      for (int64_t i = 0; i < z[o].NumElements(); ++i) {
        sum += static_cast<long double>(values[i]) * weights[i];
      }
    }
    return static_cast<double>(sum);
  }

  static constexpr double kScale = 0.75;
  std::vector<NDArray> x, z, d;
  bool scaled = false;

 private:
  const OpCase& case_;
  std::vector<bool> weighs_;
};

struct Tally {
  int64_t compared = 0, kinks = 0;
};

// Compares some elements of `gradient` with what moving those of `point` does to the loss.
void CheckElements(Forward& forward, NDArray& point, const NDArray& gradient,
                   std::mt19937_64& random, const std::string& what, Tally* tally) {
  ASSERT_EQ(point.shape(), gradient.shape()) << what;
  const double here = forward.Loss();
  for (int sample = 0; sample < kElementsOfACase && point.NumElements() > 0; ++sample) {
    const auto i = static_cast<int64_t>(random() % static_cast<uint64_t>(point.NumElements()));
    double& value = point.mutable_data<double>()[i];
    const double kept = value;
    value = kept + kStep;
    const double above = forward.Loss();
    value = kept - kStep;
    const double below = forward.Loss();
    value = kept;
    const double right = (above - here) / kStep, left = (here - below) / kStep;
    // Where it has a corner (equal elements of a window, 0 of a ReLU) any of the two is right.
    if (std::abs(right - left) > 2e-3 * (1 + std::abs(right))) {
      ++tally->kinks;
      continue;
    }
    ++tally->compared;
    const double numeric = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient.data<double>()[i], numeric, 2e-7 * (1 + std::abs(numeric)))
        << what << ", element " << i;
  }
}

void CheckCase(const Row& row, const OpCase& c, std::mt19937_64& random, Tally* tally) {
  Forward forward(c, random, row);
  forward.Loss();
  std::vector<NDArray> operands;
  std::vector<const NDArray*> inputs;
  for (const GradientOperand& operand : row.rule.inputs) {
    const std::vector<NDArray>& from = operand.from == From::kInput    ? forward.x
                                       : operand.from == From::kOutput ? forward.z
                                                                       : forward.d;
    operands.push_back(from[static_cast<size_t>(operand.index)].To(LinkedDevice()));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const GradientOperand& operand = row.rule.inputs[i];
    const bool absent =
        operand.from == From::kInput && !c.inputs[static_cast<size_t>(operand.index)].present;
    inputs.push_back(absent ? nullptr : &operands[i]);
  }
  std::vector<NDArray> results;
  std::vector<NDArray*> outputs;
  const std::vector<int>& wanted = row.rule.with_respect_to;
  for (const int input : wanted) {
    results.push_back(NDArray(forward.x[static_cast<size_t>(input)].shape(), DType::kFloat64,
                              Place::On(LinkedDevice())));
  }
  for (NDArray& result : results) outputs.push_back(&result);
  const OpCode gradient = row.rule.gradient;
  const CrossEntropyGradAttributes entropy{Forward::kScale};
  const LossGradAttributes loss{Forward::kScale};
  AttributesRef attributes;
  if (Info(gradient).attributes.bytes() > 0) attributes = c.attributes.get();
  if (forward.scaled) {
    attributes = &loss;
    if (Info(gradient).attributes == AttributesType::Of<CrossEntropyGradAttributes>())
      attributes = &entropy;
  }
  {
    const ScopedProvider provider(Provider());
    Dispatch(gradient, inputs, absl::MakeConstSpan(outputs), attributes);
  }
  for (NDArray& result : results) result = result.To(Host());
  for (size_t o = 0; o < wanted.size(); ++o) {
    CheckElements(forward, forward.x[static_cast<size_t>(wanted[o])], results[o], random,
                  c.ToString() + ", with respect to " + Info(c.op).name + "'s " +
                      OperandName(Info(c.op).inputs, wanted[o]),
                  tally);
  }
}

class GradientList : public testing::TestWithParam<Row> {};

TEST_P(GradientList, AgreesWithCentralDifferences) {
  const Row& row = GetParam();
  if (FindDeviceProvider(LinkedDevice()) == nullptr)
    GTEST_SKIP() << "no " << DeviceName(LinkedDevice());
  const ScopedProvider reference("reference");
  std::mt19937_64 random(20261121);
  Tally tally;
  int cases = 0;
  for (int drawn = 0; cases < CaseCount() && drawn < 100 * CaseCount(); ++drawn) {
    OpCase c = MakeOpCase(row.forward, DType::kFloat64, random);
    if (!IsUsable(c)) continue;
    MakePlain(c);
    CheckCase(row, c, random, &tally);
    ++cases;
  }
  std::printf("%d cases, %ld elements compared, %ld at corners\n", cases,
              static_cast<long>(tally.compared), static_cast<long>(tally.kinks));
  EXPECT_EQ(cases, CaseCount());
  EXPECT_GE(tally.compared, cases);
  EXPECT_LT(tally.kinks, tally.compared);
}

INSTANTIATE_TEST_SUITE_P(Operators, GradientList, testing::ValuesIn(Rows()),
                         [](const testing::TestParamInfo<Row>& info) {
                           return std::string(Info(info.param.rule.gradient).name);
                         });

// Rows are what knows of gradients: a gradient operator that no row names would not be checked.
TEST(GradientListTest, EveryGradientOperatorIsARowsGradient) {
  std::multiset<std::string> listed, named;
  for (int op = 0; op < kOpCodes; ++op) {
    const char* name = Info(static_cast<OpCode>(op)).name;
    if (std::strstr(name, "_grad") != nullptr) listed.insert(name);
  }
  for (const Row& row : Rows()) named.insert(Info(row.rule.gradient).name);
  EXPECT_EQ(named, listed);
}

}  // namespace
}  // namespace tidepool
