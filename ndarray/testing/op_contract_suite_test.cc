// The suite finds what it is there to find: kernels broken in one way each.
#include "tidepool/ndarray/testing/op_contract_suite.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

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
  Map(call, [](float x) { return x > 0.9f ? std::nextafterf(x, 2) : GoodRelu(x); });
}
void IgnoresStrides(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t count = x.NumElements();
  for (int64_t i = 0; i < count; ++i) {
    call.outputs[0].as<float>()[i] = GoodRelu(x.as<float>()[i]);
  }
}
void DependsOnThreads(const KernelCall& call) {
  Map(call, [&](float x) { return GoodRelu(x) + (call.threads == 3 ? 1.0f : 0.0f); });
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

constexpr Kernel Faulty(const char* provider, void (*run)(const KernelCall&),
                        bool (*supports)(const KernelCall&) = nullptr) {
  return {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, provider, -1,
          run,           nullptr,           supports,        true};
}
const KernelRegistrar registrar({
    Faulty("good", &Good),
    Faulty("nan", &LosesNaN),
    Faulty("ulp", &OneUlpOff),
    Faulty("strides", &IgnoresStrides),
    Faulty("threads", &DependsOnThreads),
    Faulty("behind", &WritesBehind),
    Faulty("input", &WritesInput),
    Faulty("in_place", &ReadsWhatItWrote),
    Faulty("refuses", &Good, &Refuses),
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

TEST(OpContractSuite, FindsIgnoredStridesAndForeignWrites) {
  EXPECT_THAT(Problems("strides"), Contains(HasSubstr("written outside its view")));
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
