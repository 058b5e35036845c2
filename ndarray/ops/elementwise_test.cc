// Elementwise functions: promotion, what they refuse and in which words, broadcasting, in-place
// forms that allocate nothing.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kF16 = DType::kFloat16,
                kBF16 = DType::kBFloat16, kI8 = DType::kInt8, kU8 = DType::kUInt8,
                kI32 = DType::kInt32, kI64 = DType::kInt64, kBool = DType::kBool;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}

NDArray Of(DType dtype, const std::vector<double>& values) {
  return Cast(FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())}),
              dtype);
}
std::vector<double> Values(const NDArray& x) { return Cast(x, kF64).ToVector<double>(); }
std::vector<bool> Bools(const NDArray& x) { return x.ToVector<bool>(); }

TEST(Promotion, ResultsHaveThePromotedType) {
  const struct {
    DType x, y, z;
  } cases[] = {{kF32, kF64, kF64}, {kF16, kBF16, kF32}, {kI8, kU8, DType::kInt16},
               {kI32, kF32, kF64}, {kI64, kF32, kF64},  {kU8, kF16, kF16},
               {kBool, kI8, kI8},  {kF32, kBool, kF32}};
  for (const auto& c : cases) {
    const NDArray x = Of(c.x, {1, 1}), y = Of(c.y, {1, 1});
    for (const NDArray& z : {x + y, y + x}) {
      EXPECT_EQ(z.dtype(), c.z) << DTypeName(c.x) << " + " << DTypeName(c.y);
      EXPECT_THAT(Values(z), ElementsAre(2, 2));
    }
    EXPECT_EQ(Maximum(x, y).dtype(), c.z);
    EXPECT_EQ(Where(Of(kBool, {1, 0}), x, y).dtype(), c.z);
    EXPECT_THAT(Bools(Equal(x, y)), ElementsAre(true, true));
  }
  // Compared as f64, in which 2^24 + 1 is not 2^24.
  EXPECT_THAT(Bools(Less(Of(kF32, {0x1p24}), Of(kI32, {0x1p24 + 1}))), ElementsAre(true));
}

TEST(Promotion, ResultsOfFloatTypeTakeFloatsOfAnother) {
  const NDArray x = Of(kF32, {1, 2}), wide = Of(kF64, {0.5, 0.25});
  NDArray z = Of(kF32, {0, 0});
  AddInto(x, wide, z);
  EXPECT_THAT(Values(z), ElementsAre(1.5, 2.25));
  z += Of(kI64, {1, 1});  // promotes to f64, is cast to f32
  EXPECT_THAT(Values(z), ElementsAre(2.5, 3.25));
  NDArray half = Of(kF16, {0, 0});
  MultiplyInto(x, x, half);
  EXPECT_THAT(Values(half), ElementsAre(1, 4));
  ExpInto(Of(kI32, {0, 0}), half);
  EXPECT_THAT(Values(half), ElementsAre(1, 1));
  WhereInto(Of(kBool, {1, 0}), x, wide, half);
  EXPECT_THAT(Values(half), ElementsAre(1, 0.25));
  NDArray ints = Of(kI64, {5, 6});
  ints += Of(kI32, {1, 1});
  EXPECT_THAT(Values(ints), ElementsAre(6, 7));
}

TEST(Promotion, OtherResultsAreRefused) {
  NDArray ints = Of(kI32, {1, 2}), floats = Of(kF32, {1, 2});
  EXPECT_EQ(Refusal([&] {
              ints += Of(kI64, {1, 2});
            }),
            "Op [add]: X is i32, Y is i64, Z is i32, expected Z of type i64");
  EXPECT_EQ(Refusal([&] { ints *= floats; }),
            "Op [multiply]: X is i32, Y is f32, Z is i32, expected Z of type f64 or another float "
            "type");
  EXPECT_EQ(Refusal([&] { AddInto(ints, ints, floats); }),
            "Op [add]: X is i32, Y is i32, Z is f32, expected Z of type i32");
  EXPECT_EQ(Refusal([&] { ExpInto(floats, ints); }),
            "Op [exp]: X is f32, Z is i32, expected Z of type f32 or another float type");
  EXPECT_EQ(Refusal([&] { NegateInto(ints, floats); }),
            "Op [negate]: X is i32, Z is f32, expected Z of type i32");
  EXPECT_EQ(
      Refusal([&] {
        WhereInto(Of(kBool, {1, 0}), floats, floats, ints);
      }),
      "Op [where]: condition is bool, X is f32, Y is f32, Z is i32, expected Z of type f32 or "
      "another float type");
  EXPECT_EQ(Refusal([&] { LessInto(ints, ints, ints); }), "Op [less]: Z is i32, expected bool");
  EXPECT_THAT(Values(ints), ElementsAre(1, 2));
}

TEST(Bool, ArithmeticIsRefusedLogicIsNot) {
  const NDArray x = Of(kBool, {1, 0}), y = Of(kBool, {1, 1});
  EXPECT_EQ(Refusal([&] { x + y; }),
            "Op [add]: operands are bool, expected numbers; Cast them to a number type, or use "
            "LogicalAnd, LogicalOr, LogicalXor or LogicalNot");
  EXPECT_THAT(Refusal([&] { Negate(x); }), HasSubstr("Op [negate]: operands are bool"));
  EXPECT_THAT(Refusal([&] { x * 2.0; }), HasSubstr("Op [multiply]: operands are bool"));
  EXPECT_THAT(Refusal([&] { Clip(x, 0, 1); }), HasSubstr("Op [clip]: operands are bool"));
  EXPECT_EQ(Refusal([&] {
              LogicalAnd(x, Of(kF32, {1, 0}));
            }),
            "Op [logical_and]: Y is f32, expected bool; compare it with something, or Cast it");
  EXPECT_THAT(Refusal([&] { LogicalNot(Of(kI8, {1})); }), HasSubstr("X is i8, expected bool"));
  EXPECT_THAT(Refusal([&] { Where(Of(kU8, {1}), x, y); }),
              HasSubstr("Op [where]: condition is u8, expected bool"));
  EXPECT_THAT(Bools(LogicalXor(x, y)), ElementsAre(false, true));
  EXPECT_THAT(Values(Exp(x)), ElementsAre(std::exp(1.0f), 1));
}

TEST(Integers, ZeroDivisorsAndNegativePowersAreRefused) {
  for (const DType dtype : {kI8, kU8, kI32, kI64}) {
    const NDArray x = Of(dtype, {4, 6}), zero = Of(dtype, {2, 0});
    EXPECT_EQ(Refusal([&] { Remainder(x, zero); }),
              "Op [remainder]: Y of shape [2] has a zero; integer division by zero is not defined");
    EXPECT_THAT(Refusal([&] { x / zero; }), HasSubstr("Op [divide]: Y of shape [2] has a zero"));
  }
  EXPECT_EQ(Refusal([&] { Power(Of(kI8, {4}), Of(kI8, {-1})); }),
            "Op [power]: Y of shape [1] has a negative element; integers have no negative powers, "
            "Cast to a float type");
  NDArray small = Of(kI8, {100, 50});
  EXPECT_EQ(Refusal([&] { small /= 300; }),
            "Op [divide]: Y is 300, expected a whole number that i8 holds");
  small /= 7;
  EXPECT_THAT(Values(small), ElementsAre(14, 7));
}

TEST(Integers, FunctionsOfRealNumbersCast) {
  EXPECT_EQ(Sqrt(Of(kI8, {4})).dtype(), kF32);
  EXPECT_EQ(Sqrt(Of(kU8, {4})).dtype(), kF32);
  EXPECT_EQ(Sqrt(Of(kI32, {4})).dtype(), kF64);
  EXPECT_EQ(Log(Of(kI64, {4})).dtype(), kF64);
  EXPECT_EQ(Gelu(Of(kF16, {4})).dtype(), kF16);
  EXPECT_THAT(Values(Sqrt(Of(kI64, {4, 9}))), ElementsAre(2, 3));
  EXPECT_THAT(Bools(IsNan(Of(kI64, {4}))), ElementsAre(false));
  EXPECT_THAT(Bools(IsFinite(Of(kBool, {1}))), ElementsAre(true));
}

TEST(Clip, BoundsAreChecked) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Refusal([&] { Clip(Of(kF32, {1}), 2, 1); }),
            "Op [clip]: low is 2, high is 1, expected low <= high");
  EXPECT_THAT(Refusal([&] { Clip(Of(kF32, {1}), nan, 1); }), HasSubstr("expected low <= high"));
  EXPECT_EQ(Refusal([&] { Clip(Of(kI8, {1}), 0.5, 2); }),
            "Op [clip]: low is 0.5, high is 2, X is i8, expected whole numbers");
}

TEST(Gradients, OperandsAreChecked) {
  const NDArray x = Of(kF32, {1, 2});
  EXPECT_EQ(Refusal([&] {
              SwishGrad(x, Of(kF64, {1, 2}));
            }),
            "Op [swish_grad]: dZ is f64, expected f32");
  EXPECT_EQ(Refusal([&] { GeluGrad(x, Of(kF32, {1})); }),
            "Op [gelu_grad]: dZ has shape [1], expected [2]");
  EXPECT_EQ(Refusal([&] { TanhGrad(Of(kI8, {1}), Of(kI8, {1})); }),
            "Op [tanh_grad]: Z is i8, expected a float type");
}

TEST(Where, BroadcastsAllThree) {
  const NDArray condition = Of(kBool, {1, 0}).Reshape({2, 1});
  const NDArray x = Of(kI32, {1, 2, 3}), y = Of(kI32, {-1});
  EXPECT_THAT(Values(Where(condition, x, y)), ElementsAre(1, 2, 3, -1, -1, -1));
  EXPECT_EQ(Refusal([&] {
              Where(Of(kBool, {1, 0}), x, y);
            }),
            "Op [where]: condition has shape [2], X and Y together [3]; sizes 2 and 3 do not "
            "broadcast");
  NDArray z = Zeros({2, 3}, kI32);
  WhereInto(condition, x, z, z);
  EXPECT_THAT(Values(z), ElementsAre(1, 2, 3, 0, 0, 0));
}

TEST(Shapes, ScalarsEmptyAndRankEight) {
  const NDArray scalar = Full({}, 3, kI32);
  EXPECT_EQ((scalar * scalar).Item<int32_t>(), 9);
  EXPECT_EQ(Exp(Zeros({})).Item<float>(), 1);
  EXPECT_THAT(Values(Exp(Empty({0, 3}))), IsEmpty());
  EXPECT_EQ((Empty({0, 3}) + Ones({3})).shape(), (Shape{0, 3}));
  EXPECT_THAT(Bools(Less(Empty({0}, kI8), Empty({0}, kI8))), IsEmpty());
  const NDArray deep = Arange(0, 16).Reshape({2, 1, 2, 1, 2, 1, 2, 1});
  const NDArray sum = deep + Ones({1, 1, 1, 1, 1, 1, 1, 2});
  EXPECT_EQ(sum.shape(), (Shape{2, 1, 2, 1, 2, 1, 2, 2}));
  EXPECT_EQ(sum.At<float>({1, 0, 1, 0, 1, 0, 1, 1}), 16);
  EXPECT_EQ(Negate(deep).At<float>({1, 0, 0, 0, 0, 0, 1, 0}), -9);
}

TEST(InPlace, NothingIsAllocated) {
  NDArray x = Ones({64, 8}), dz = Ones({64, 8}), ints = Ones({64}, kI8);
  NDArray column = Ones({8, 64}).Transpose();  // strided, of x's shape
  NDArray half = Ones({64, 8}, kF16), flags = Ones({64, 8}, kBool);
  const NDArray row = Ones({8});
  const int64_t before = MemoryTracker::Global().system_allocations();
  x += row;
  x *= column;
  x -= 1.5;
  column /= row;
  PowerInto(x, row, x);
  RemainderInto(x, row, x);
  ExpInto(x, x);
  GeluInto(x, GeluForm::kTanh, x);
  ClipInto(x, -1, 1, x);
  SwishGradInto(x, dz, dz);
  SigmoidInto(column, column);
  MaximumInto(half, half, half);
  TanhInto(half, half);
  AbsInto(ints, ints);
  LessInto(x, row, flags);
  LogicalNotInto(flags, flags);
  WhereInto(flags, x, row, x);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
}

TEST(SignBit, OfIntegersIsWhetherTheyAreBelowZero) {
  EXPECT_THAT(Bools(SignBit(Of(kI32, {-3, 0, 7}))), ElementsAre(true, false, false));
  EXPECT_THAT(Bools(SignBit(Of(DType::kUInt8, {0, 200}))), ElementsAre(false, false));
  EXPECT_THAT(Bools(SignBit(Of(kF32, {-0.0, 0, -1, 2}))), ElementsAre(true, false, true, false));
}

}  // namespace
}  // namespace tidepool
