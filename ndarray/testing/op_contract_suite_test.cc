// The suite finds what it is there to find: kernels broken in one way each.
#include "tidepool/ndarray/testing/op_contract_suite.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/testing/own_operator.h"

namespace tidepool {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Z = op(X), any strides; the faults below wrap it.
template <typename Operation>
void Map(const KernelCall& call, Operation operation) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[1]);
  ForEachRun<2>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    z.as<float>()[offset[1] + i * stride[1]] =
                        operation(x.as<float>()[offset[0] + i * stride[0]]);
                  }
                });
}
float GoodRelu(float x) { return x <= 0 ? 0.0f : x; }

void Good(const KernelCall& call) { Map(call, GoodRelu); }
void LosesNaN(const KernelCall& call) {
  Map(call, [](float x) { return x > 0 ? x : 0.0f; });
}
void OneUlpOff(const KernelCall& call) {
  Map(call, [](float x) { return x > 0.9f && x < 1e30f ? std::nextafterf(x, 2) : GoodRelu(x); });
}
void IgnoresStrides(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t count = x.NumElements();
  for (int64_t i = 0; i < count; ++i) {
    call.outputs[0].as<float>()[i] = GoodRelu(x.as<float>()[i]);
  }
}
void DependsOnThreads(const KernelCall& call) {
  Map(call, [&](float x) { return GoodRelu(x) + (call.threads.count == 3 ? 1.0f : 0.0f); });
}
void WritesBehind(const KernelCall& call) {
  Good(call);
  const TensorRef& z = call.outputs[0];
  // Offset views have room behind them; a dense array of its own has none.
  if (z.rank == 1 && z.strides[0] > 1) z.as<float>()[1] = 0;
}
void WritesInput(const KernelCall& call) {
  Map(call, GoodRelu);
  const TensorRef& x = call.inputs[0];
  if (x.as<float>() != call.outputs[0].as<float>()) *x.as<float>() += 1;
}
void ReadsWhatItWrote(const KernelCall& call) {
  Map(call, [](float) { return 0.0f; });
  Good(call);
}
bool Refuses(const KernelCall&) { return false; }

constexpr Kernel Faulty(int number, const char* provider, void (*run)(const KernelCall&),
                        bool (*supports)(const KernelCall&) = nullptr) {
  return {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, provider, -number,
          run,           nullptr,           supports,        true};
}
const KernelRegistrar registrar({
    Faulty(1, "good", &Good),
    Faulty(2, "nan", &LosesNaN),
    Faulty(3, "ulp", &OneUlpOff),
    Faulty(4, "strides", &IgnoresStrides),
    Faulty(5, "threads", &DependsOnThreads),
    Faulty(6, "behind", &WritesBehind),
    Faulty(7, "input", &WritesInput),
    Faulty(8, "in_place", &ReadsWhatItWrote),
    Faulty(9, "refuses", &Good, &Refuses),
});

std::vector<std::string> Problems(const char* provider, std::vector<std::string> may_refuse = {}) {
  return OperatorProblems({.provider = provider, .may_refuse = std::move(may_refuse)},
                          OpCode::kRelu, DType::kFloat32, 300);
}

TEST(OpContractSuite, FindsNothingWrongWithAGoodKernel) {
  EXPECT_THAT(Problems("good"), IsEmpty());
}

TEST(OpContractSuite, FindsWrongValues) {
  EXPECT_THAT(Problems("nan"), Contains(HasSubstr("expected nan")));
  EXPECT_THAT(Problems("ulp"), Contains(HasSubstr("Z: element")));
}

// "ulp" is a step of the last bit off where the list wants bits.
TEST(OpContractSuite, WhatIsSaidToBeCloseMustBeThat) {
  const auto problems = [](const char* kernels, double relative) {
    return OperatorProblems({.provider = "ulp", .close = {{kernels, relative, 0}}}, OpCode::kRelu,
                            DType::kFloat32, 300);
  };
  EXPECT_THAT(problems("relu f32", 1.3e-7), IsEmpty());
  EXPECT_THAT(problems("relu *", 1.3e-7), IsEmpty());
  EXPECT_THAT(problems("relu f32", 0.3e-7), Contains(HasSubstr("Z: element")))
      << "closer than it is";
  EXPECT_THAT(problems("relu f64", 1.3e-7), Contains(HasSubstr("Z: element")))
      << "another kernel's";
  EXPECT_THAT(
      GapProblems({.provider = "good", .only = {"relu f32"}, .close = {{"rellu f32", 1, 1}}}),
      Contains(HasSubstr("unknown name \"rellu f32\"")));
}

TEST(OpContractSuite, FindsIgnoredStridesAndForeignWrites) {
  // Whichever the first cases show: other elements than expected, or those between.
  EXPECT_THAT(Problems("strides"),
              Contains(testing::AnyOf(HasSubstr("differ"), HasSubstr("written outside its view"))));
  EXPECT_THAT(Problems("behind"), Contains(HasSubstr("operand 1 was written outside its view")));
  EXPECT_THAT(Problems("input"), Contains(HasSubstr("input X was written to")));
}

TEST(OpContractSuite, FindsDependenceOnThreadsAndBrokenInPlaceForms) {
  EXPECT_THAT(Problems("threads"), Contains(HasSubstr("with 3 threads instead of 1")));
  EXPECT_THAT(Problems("in_place"), Contains(HasSubstr("written over input 0")));
}

TEST(OpContractSuite, RefusalsAreFailuresUnlessListed) {
  EXPECT_THAT(Problems("refuses"), Contains(HasSubstr("f32 on host supports this call")));
  EXPECT_THAT(Problems("refuses", {"relu f32"}), Contains(HasSubstr("of 300 calls")));
}

// An operator of this test's own: Z = X * scale, of which one kernel forgets the scale.
struct OwnAttributes {
  float scale = 1;
};
OpCode Own() {
  static const OpCode op = AddOperator({.name = "own_scale",
                                        .inputs = "X",
                                        .outputs = "Z",
                                        .attributes = AttributesType::Of<OwnAttributes>(),
                                        .flags = operator_list::kInPlace,
                                        .types = SetOf(DType::kFloat32)});
  return op;
}
void OwnGood(const KernelCall& call) {
  Map(call, [scale = call.attrs<OwnAttributes>().scale](float x) { return x * scale; });
}
void OwnForgets(const KernelCall& call) {
  Map(call, [](float x) { return x; });
}
const KernelRegistrar own_registrar({
    {Own(), DeviceType::kHost, DType::kFloat32, "reference", 0, &OwnGood, nullptr, nullptr, true},
    {Own(), DeviceType::kHost, DType::kFloat32, "forgets", 1, &OwnForgets, nullptr, nullptr, true},
    {Own(), DeviceType::kHost, DType::kFloat32, "own", 2, &OwnGood, nullptr, nullptr, true},
});

TEST(OpContractSuite, OperatorsOfOnesOwnHaveTheSameContract) {
  EXPECT_THAT(GapProblems({.provider = "own", .only = {"own_scale f32"}}),
              Contains(HasSubstr("unknown name \"own_scale f32\"")))
      << "without cases";
  AddOpCases(Own(),
             [](CaseValues& values, OpCase& c) {
               const Shape shape = values.AnyShape(0, 4);
               c.inputs = {values.Floats(shape)};
               c.outputs = {values.Floats(shape)};
               c.attributes = OwnAttributes{static_cast<float>(values.Real(2, 3))};
             },
             {Comparison::kBits});
  EXPECT_THAT(GapProblems({.provider = "own", .only = {"own_scale f32"}}), IsEmpty());
  EXPECT_THAT(GapProblems({.provider = "own", .gaps = {"own_scale f32"}}),
              Contains(HasSubstr("stale list: \"own\" has a kernel for own_scale f32")));
  EXPECT_THAT(OperatorProblems({.provider = "own"}, Own(), DType::kFloat32, 200), IsEmpty());
  EXPECT_THAT(OperatorProblems({.provider = "forgets"}, Own(), DType::kFloat32, 200),
              Contains(HasSubstr("Z: element")));
  EXPECT_THAT(CatchStatus([] { AddOpCases(Own(), nullptr, {}); }).message(),
              HasSubstr("cases of operator own_scale: it has some already"));
}

TEST(OpContractSuite, GapListsAreStaleInEitherDirection) {
  EXPECT_THAT(GapProblems({.provider = "good", .only = {"relu f32"}}), IsEmpty());
  EXPECT_THAT(GapProblems({.provider = "good", .only = {"relu f32", "matmul f32"}}),
              Contains(HasSubstr("gap: \"good\" has no kernel for matmul f32")));
  EXPECT_THAT(GapProblems({.provider = "good", .gaps = {"relu f32"}}),
              Contains(HasSubstr("stale list: \"good\" has a kernel for relu f32")));
  EXPECT_THAT(GapProblems({.provider = "good", .gaps = {"rellu f32"}}),
              Contains(HasSubstr("unknown name \"rellu f32\"")));
}

}  // namespace
}  // namespace tidepool
