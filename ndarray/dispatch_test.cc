#include "tidepool/ndarray/dispatch.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/updaters.h"
#include "tidepool/ndarray/testing/public_calls.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string MessageOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}

// ---- kernels of this test -------------------------------------------------------------------
struct Seen {
  bool dense = false;
  void* scratch = nullptr;
  size_t bytes_in_workspace = 0;
  uint32_t version = 0;
};
Seen seen;
const Workspace* watched = nullptr;

void Watch(const KernelCall& call) {
  seen.dense = call.inputs[0].dense && call.outputs[0].dense;
  seen.scratch = call.scratch;
  seen.version = static_cast<uint32_t>(call.outputs[0].version);
  if (watched != nullptr) seen.bytes_in_workspace = watched->bytes_this_cycle();
  if (call.scratch != nullptr) std::memset(call.scratch, 0xab, 1000);
  for (int64_t i = 0; i < call.outputs[0].NumElements(); ++i) {
    call.outputs[0].as<float>()[i] = -call.inputs[0].as<float>()[i];
  }
}
void Throw(const KernelCall& call) {
  call.outputs[0].as<float>()[0] = 99;
  ThrowInternal("the kernel gave up");
}
size_t ThousandBytes(const KernelCall&) { return 1000; }
bool OnlySmall(const KernelCall& call) { return call.outputs[0].NumElements() <= 4; }

const KernelRegistrar registrar({
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "watching", -2, &Watch, &ThousandBytes},
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "throwing", -3, &Throw, &ThousandBytes},
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "picky", 5, &Watch, nullptr, &OnlySmall},
});

// ---- choice of the kernel -------------------------------------------------------------------
TEST(Dispatch, TheHighestPriorityThatSupportsTheCallRuns) {
  EXPECT_THAT(Relu(Full({4}, 2)).ToVector<float>(), Each(-2));  // "picky", not the reference
  EXPECT_THAT(Relu(Full({5}, 2)).ToVector<float>(), Each(2));
  ScopedProvider forced("reference");
  EXPECT_THAT(Relu(Full({4}, 2)).ToVector<float>(), Each(2));
}

TEST(Dispatch, AForcedProviderMustHaveTheKernel) {
  ScopedProvider forced("watching");
  const NDArray x = Ones({2});  // fill falls back
  EXPECT_EQ(
      MessageOf([&] { x + x; }, absl::StatusCode::kUnimplemented),
      "Op [add]: no \"watching\" kernel for f32 on host is linked; linked providers: "
      "builtin, picky, reference, throwing, watching; add //backends:linked, //backends/cpu or "
      "//backends/reference to deps");
  {
    ScopedProvider picky("picky");
    EXPECT_THAT(MessageOf([&] { Relu(Ones({5})); }, absl::StatusCode::kUnimplemented),
                HasSubstr("no \"picky\" kernel for f32 on host supports this call"));
  }
  EXPECT_STREQ(ScopedProvider::Current(), "watching");
}

TEST(Dispatch, MissingTypesSayWhatIsLinked) {
  NDArray x = Zeros({2}, DType::kInt64), z = x.Dup();
  EXPECT_THAT(
      MessageOf([&] { Dispatch(OpCode::kRelu, {&x}, {&z}); }, absl::StatusCode::kUnimplemented),
      StartsWith("Op [relu]: no kernel for i64 on host is linked; linked providers: "));
}

TEST(Dispatch, EmptyResultsCallNoKernel) {
  ScopedProvider forced("throwing");
  EXPECT_EQ(Relu(Empty({0, 3})).shape(), (Shape{0, 3}));
}

// ---- operands -------------------------------------------------------------------------------
TEST(Dispatch, KernelsThatNeedDenseOperandsGetThem) {
  ScopedProvider forced("watching");
  const NDArray base = Arange(0, 6).Reshape({2, 3});
  NDArray z = Zeros({2, 4});
  NDArray view = z.Slice(1, 1, 3).Transpose();
  const uint32_t version = z.buffer()->version.load();
  ReluInto(base.Slice(1, 0, 2).Transpose(), view);
  EXPECT_TRUE(seen.dense);
  EXPECT_EQ(z.buffer()->version.load(), version + 1);  // copied there, in one write
  EXPECT_THAT(z.ToVector<float>(), ElementsAre(0, 0, -1, 0, 0, -3, -4, 0));
  NDArray in_place = base.Slice(1, 1, 3);
  ReluInto(in_place, in_place);
  EXPECT_THAT(base.ToVector<float>(), ElementsAre(0, -1, -2, 3, -4, -5));
}

TEST(Dispatch, OverlapIsRefusedUnlessItIsTheSameView) {
  NDArray x = Arange(0, 8);
  NDArray front = x.Slice(0, 0, 4), shifted = x.Slice(0, 1, 5), back = x.Slice(0, 4, 8);
  EXPECT_EQ(MessageOf([&] { AddInto(front, back, shifted); }, absl::StatusCode::kInvalidArgument),
            "Op [add]: output Z overlaps input X without being the same view");
  EXPECT_EQ(MessageOf([&] { AddInto(back, shifted, back); }, absl::StatusCode::kInvalidArgument),
            "Op [add]: output Z overlaps input Y without being the same view");
  EXPECT_EQ(MessageOf([&] { CopyInto(front, front); }, absl::StatusCode::kInvalidArgument),
            "Op [copy]: output Z overlaps input X; the operator is not done in place");
  NDArray square = x.Reshape({2, 4}).Slice(1, 0, 2);
  EXPECT_EQ(
      MessageOf([&] { MatMulInto(square, square, square); }, absl::StatusCode::kInvalidArgument),
      "Op [matmul]: output Z overlaps input X; the operator is not done in place");
  NDArray transposed = square.Transpose();
  EXPECT_THAT(
      MessageOf([&] { AddInto(square, square, transposed); }, absl::StatusCode::kInvalidArgument),
      HasSubstr("without being the same view"));
  EXPECT_EQ(MessageOf([&] { NesterovsUpdate(Ones({4}), front, front, {}); },
                      absl::StatusCode::kInvalidArgument),
            "Op [nesterovs_update]: outputs parameters and velocity overlap");
  EXPECT_THAT(MessageOf([&] { SgdUpdate(front, front, {}); }, absl::StatusCode::kInvalidArgument),
              HasSubstr("output parameters overlaps input gradient"));
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  front += back;  // apart
  NDArray left = x.Reshape({2, 4}).Slice(1, 0, 2), right = x.Reshape({2, 4}).Slice(1, 2, 4);
  left += right;  // columns of one matrix
  left += left;
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(24, 32, 8, 10, 20, 24, 6, 7));
}

// ---- stale operands of every operator -------------------------------------------------------
std::vector<PublicCall> EveryOperator() {
  using A = std::vector<NDArray>&;
  const Shape m{2, 2}, image{1, 2, 2, 1}, one{1, 1, 1, 1};
  const DType i64 = DType::kInt64;
  std::vector<PublicCall> calls = {
      {"fill", {{"Z", m}}, [](A a) { FillInto(1, a[0]); }},
      {"copy", {{"X", m}, {"Z", m}}, [](A a) { CopyInto(a[0], a[1]); }},
      {"add", {{"X", m}, {"Y", m}}, [](A a) { Add(a[0], a[1]); }},
      {"add", {{"X", m}, {"Y", m}, {"Z", m}}, [](A a) { AddInto(a[0], a[1], a[2]); }},
      {"add", {{"X", m}, {"Y", m}}, [](A a) { a[0] += a[1]; }},
      {"subtract", {{"X", m}, {"Y", m}}, [](A a) { Subtract(a[0], a[1]); }},
      {"subtract", {{"X", m}, {"Y", m}, {"Z", m}}, [](A a) { SubtractInto(a[0], a[1], a[2]); }},
      {"multiply", {{"X", m}, {"Y", m}}, [](A a) { Multiply(a[0], a[1]); }},
      {"multiply", {{"X", m}, {"Y", m}, {"Z", m}}, [](A a) { MultiplyInto(a[0], a[1], a[2]); }},
      {"divide", {{"X", m}, {"Y", m}}, [](A a) { Divide(a[0], a[1]); }},
      {"divide",
       {{"X", m, i64}, {"Y", m, i64}, {"Z", m, i64}},
       [](A a) { DivideInto(a[0], a[1], a[2]); }},
      {"divide", {{"X", m}}, [](A a) { a[0] /= 2; }},
      {"scale_shift", {{"X", m}}, [](A a) { ScaleShift(a[0], 2, 1); }},
      {"scale_shift", {{"X", m}, {"Z", m}}, [](A a) { ScaleShiftInto(a[0], 2, 1, a[1]); }},
      {"multiply", {{"X", m}}, [](A a) { a[0] *= 2; }},
      {"relu", {{"X", m}}, [](A a) { Relu(a[0]); }},
      {"relu", {{"X", m}, {"Z", m}}, [](A a) { ReluInto(a[0], a[1]); }},
      {"relu_grad", {{"Z", m}, {"dZ", m}, {"dX", m}}, [](A a) { ReluGradInto(a[0], a[1], a[2]); }},
      {"matmul", {{"X", m}, {"Y", m}, {"bias", {2}}}, [](A a) { MatMul(a[0], a[1], {}, &a[2]); }},
      {"matmul", {{"X", m}, {"Y", m}, {"Z", m}}, [](A a) { MatMulInto(a[0], a[1], a[2]); }},
      {"conv2d",
       {{"input", image}, {"filter", image}, {"bias", {1}}},
       [](A a) { Conv2d(a[0], a[1], &a[2], {}); }},
      {"conv2d_grad_input",
       {{"output_gradient", one}, {"filter", image}},
       [=](A a) { Conv2dGradInput(a[0], a[1], image, {}); }},
      {"conv2d_grad_filter",
       {{"input", image}, {"output_gradient", one}, {"filter_gradient", image}},
       [](A a) { Conv2dGradFilterInto(a[0], a[1], a[2], {}); }},
      {"max_pool2d", {{"input", image}}, [](A a) { MaxPool2d(a[0], {}); }},
      {"max_pool2d_grad",
       {{"input", image}, {"output", one}, {"output_gradient", one}},
       [](A a) { MaxPool2dGrad(a[0], a[1], a[2], {}); }},
      {"softmax", {{"X", m}}, [](A a) { Softmax(a[0]); }},
      {"softmax_cross_entropy",
       {{"logits", m}, {"labels", {2}, i64}},
       [](A a) { SoftmaxCrossEntropy(a[0], a[1]); }},
      {"softmax_cross_entropy_grad",
       {{"probabilities", m}, {"labels", {2}, i64}, {"gradient", m}},
       [](A a) { SoftmaxCrossEntropyGradInto(a[0], a[1], 1, a[2]); }},
      {"sgd_update", {{"gradient", m}, {"parameters", m}}, [](A a) { SgdUpdate(a[0], a[1], {}); }},
      {"nesterovs_update",
       {{"gradient", m}, {"parameters", m}, {"velocity", m}},
       [](A a) { NesterovsUpdate(a[0], a[1], a[2], {}); }},
      {"adam_update",
       {{"gradient", m}, {"parameters", m}, {"first_moment", m}, {"second_moment", m}},
       [](A a) { AdamUpdate(a[0], a[1], a[2], a[3], {}); }},
  };
  AppendElementwiseCalls(&calls);
  AppendReductionCalls(&calls);
  AppendNnCalls(&calls);
  AppendIndexingCalls(&calls);
  AppendRandomCalls(&calls);
  return calls;
}

TEST(Dispatch, StaleOperandsOfEveryOperator) {
  Workspace external("LOOP_EXTERNAL");
  std::vector<bool> covered(kOpCodes);
  for (const PublicCall& call : EveryOperator()) {
    for (int op = 0; op < kOpCodes; ++op) {
      if (std::string(Info(static_cast<OpCode>(op)).name) == call.op) covered[op] = true;
    }
    std::vector<NDArray> alive;
    for (const Operand& operand : call.operands) {
      alive.push_back(Full(operand.shape, 1, operand.dtype));
    }
    call.run(alive);  // legal with operands that live
    for (size_t k = 0; k < call.operands.size(); ++k) {
      std::vector<NDArray> arrays = alive;
      // Wrong in shape too: what is dead is reported first.
      for (const bool other_shape : {false, true}) {
        {
          WorkspaceScope scope(external);
          arrays[k] = Ones(other_shape ? Shape{7, 3, 2} : call.operands[k].shape, DType::kFloat32);
        }
        EXPECT_THAT(
            MessageOf([&] { call.run(arrays); }, absl::StatusCode::kFailedPrecondition),
            StartsWith(std::string("Op [") + call.op + "] " + call.operands[k].name +
                       " argument uses leaked workspace pointer from workspace [LOOP_EXTERNAL]"));
      }
    }
  }
  for (int op = 0; op < kOpCodes; ++op) {
    const OperatorInfo& info = Info(static_cast<OpCode>(op));
    if (info.inputs[0] == 0 && op != static_cast<int>(OpCode::kFill)) covered[op] = true;
  }
  for (int op = 0; op < kOpCodes; ++op) {
    EXPECT_TRUE(covered[op]) << Info(static_cast<OpCode>(op)).name << " is not in the list";
  }
}

TEST(Dispatch, TheWordsOfTheContract) {
  Workspace external("LOOP_EXTERNAL");
  NDArray y;
  {
    WorkspaceScope scope(external);
    y = Ones({2});
  }
  EXPECT_EQ(MessageOf([&] { Ones({2}) + y; }, absl::StatusCode::kFailedPrecondition),
            "Op [add] Y argument uses leaked workspace pointer from workspace [LOOP_EXTERNAL] "
            "(made in generation 1; the workspace is closed after generation 1)");
}

// With tracing on the error says where the array was made, for whom, and where it was used; of the
// cycle it is from, however many have gone by.
TEST(Dispatch, TracingNamesBothSitesOfAStaleArray) {
  MemoryTracing::Enable();
  NDArray y;
  {
    Workspace external("LOOP_EXTERNAL");
    for (int cycle = 0; cycle < 3; ++cycle) {
      WorkspaceScope scope(external);
      const MemoryOwnerScope owner(cycle == 1 ? "loader" : "others");
      const NDArray x = Ones({2});
      if (cycle == 1) y = x;
    }
    const std::string message =
        MessageOf([&] { Ones({2}) + y; }, absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(message, ContainsRegex("closed after generation 3\\); made for loader at .+ < .+; "
                                       "used at .+ < .+"));
  }
  EXPECT_THAT(MessageOf([&] { y.Detach(); }, absl::StatusCode::kFailedPrecondition),
              ContainsRegex("was destroyed\\); made for loader at .+; used at "));
  MemoryTracing::Disable();
  EXPECT_THAT(MessageOf([&] { y.Detach(); }, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("; made for loader at "), Not(HasSubstr("used at"))));
}

TEST(Dispatch, ArraysOfAnOuterOpenWorkspaceAreLegal) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer);
  NDArray x = Ones({2});
  WorkspaceScope inner_scope(inner);
  x += Ones({2});
  EXPECT_THAT((x + x).ToVector<float>(), ElementsAre(4, 4));
}

// ---- memory ---------------------------------------------------------------------------------
TEST(Dispatch, InPlaceOperatorsAllocateNothing) {
  NDArray heap = Ones({64}), view = Ones({8, 8}).Transpose(), ints = Ones({64}, DType::kInt64);
  const NDArray other = Ones({64}), column = Ones({8, 1}), int_other = Ones({64}, DType::kInt64);
  Workspace workspace("w");
  const int64_t before = MemoryTracker::Global().system_allocations();
  {
    WorkspaceScope scope(workspace);
    heap += other;
    heap -= other;
    heap *= other;
    heap /= other;
    heap += 1;
    heap *= 2;
    heap /= 2;
    view += column;
    view *= 3;
    ints += int_other;
    ints /= int_other;
    ReluInto(heap, heap);
    ReluGradInto(heap, other, heap);
    FillInto(3, view);
    EXPECT_EQ(workspace.bytes_this_cycle(), 0);
  }
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
}

TEST(Dispatch, ScratchComesFromTheCurrentWorkspaceAndGoesBack) {
  ScopedProvider forced("watching");
  Workspace workspace("w", WorkspaceConfig::Training());
  watched = &workspace;
  const NDArray x = Ones({4});
  NDArray z = Ones({4});
  for (int cycle = 0; cycle < 2; ++cycle) {
    WorkspaceScope scope(workspace);
    ReluInto(x, z);
    EXPECT_EQ(seen.bytes_in_workspace, 1024);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.scratch) % 64, 0u);
    ReluInto(x, z);
    EXPECT_EQ(workspace.bytes_this_cycle(), 2048);
  }
  watched = nullptr;
  EXPECT_EQ(workspace.stats().planned_peak_bytes, 1024);  // the largest, not the sum
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
}

TEST(Dispatch, ScratchIsAlignedAsKernelsCountOnWhereTheWorkspacePromisesLess) {
  ScopedProvider forced("watching");
  Workspace workspace("w", WorkspaceConfig{.alignment = 16});
  NDArray x = Ones({4});
  for (int64_t i = 0; i < 20; ++i) {
    WorkspaceScope scope(workspace);
    const NDArray before(Shape{i % 5 * 4 + 1}, DType::kFloat32);
    ReluInto(x, x);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.scratch) % 64, 0u);
  }
}

TEST(Dispatch, AThrowingKernelLeavesTheWorkspaceUsable) {
  Workspace workspace("w", WorkspaceConfig::Training());
  NDArray x = Ones({4}), z = Ones({4});
  const uint32_t version = z.buffer()->version.load();
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    {
      ScopedProvider forced("throwing");
      EXPECT_EQ(MessageOf([&] { ReluInto(x, z); }, absl::StatusCode::kInternal),
                "Op [relu]: the kernel gave up");
    }
    ScopedProvider forced("reference");
    EXPECT_THAT(Relu(x).ToVector<float>(), Each(1));
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
  EXPECT_EQ(workspace.stats().failed_cycles, 0);
  EXPECT_EQ(workspace.stats().plans, 1);
  // What the kernel half wrote is not what caches may hold.
  EXPECT_EQ(z.buffer()->version.load(), version + 3);
}

TEST(Dispatch, WritesRaiseTheVersion) {
  NDArray x = Ones({2}), y = Ones({2});
  const uint32_t x_version = x.buffer()->version.load(), y_version = y.buffer()->version.load();
  x += y;
  x.mutable_data<float>();
  NDArray view = x.Slice(0, 0, 1);
  view *= 2;
  EXPECT_EQ(x.buffer()->version.load(), x_version + 3);
  EXPECT_EQ(y.buffer()->version.load(), y_version);
}

}  // namespace
}  // namespace tidepool
