#include "tidepool/ndarray/ops/composed_gradients.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/scalar_operand.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using Call = const GradientCall&;
using Results = GradientResults;

constexpr OperandSet kX0 = InputBit(0), kX1 = InputBit(1), kX = kX0, kBoth = kX0 | kX1,
                     kZ = OutputBit(0);

// dz * factor, over dz where that is spare. For functions of one gradient.
NDArray Scaled(Call c, const NDArray& factor) {
  if (c.spare == nullptr || factor.dtype() != c.dz.dtype() ||
      BroadcastShapes("multiply", c.dz.shape(), factor.shape()) != c.dz.shape()) {
    return c.dz * factor;
  }
  MultiplyInto(*c.spare, factor, *c.spare);
  return *c.spare;
}
NDArray Scaled(Call c, double factor) {
  if (c.spare == nullptr) return c.dz * factor;
  MultiplyInto(*c.spare, factor, *c.spare);
  return *c.spare;
}
// A gradient that nobody wants is not computed.
template <typename Function>
NDArray If(Call c, int input, Function function) {
  return c.wants(input) ? function() : NDArray();
}

NDArray ZerosOf(Call c, int input) {
  return Zeros(c.x(input).shape(), c.dz.dtype(), Place::CurrentOn(c.dz.device()));
}
NDArray NumberLike(const NDArray& x, double value) { return ScalarOperand(value, x.dtype(), x); }
// `values` where the condition holds, else 0.
NDArray Where0(const NDArray& condition, const NDArray& values) {
  return Where(condition, values, NumberLike(values, 0));
}

Axes AxesOf(uint32_t mask, int rank) {
  int axes[kMaxRank];
  size_t count = 0;
  for (int i = 0; i < rank; ++i) {
    if ((mask >> i & 1) != 0) axes[count++] = i;
  }
  return absl::MakeConstSpan(axes, count);
}

Results OfMultiply(Call c) {
  if (!c.wants(0)) return {NDArray(), Scaled(c, c.x(0))};
  if (!c.wants(1)) return {Scaled(c, c.x(1))};
  return {c.dz * c.x(1), c.dz * c.x(0)};
}

// Of a reduction: `values` of the result's shape with the axes of X that it is without, of one element.
NDArray Kept(Call c, const NDArray& values) {
  const uint32_t axes = c.attrs<ReduceAttributes>().axes;
  int64_t dims[kMaxRank];
  const int rank = c.x().rank();
  for (int i = 0; i < rank; ++i) dims[i] = (axes >> i & 1) != 0 ? 1 : c.x().dim(i);
  return values.ReshapeOrCopy(Shape(absl::MakeConstSpan(dims, static_cast<size_t>(rank))));
}
double CountOfReduced(Call c) {
  return static_cast<double>(c.x().NumElements()) /
         static_cast<double>(std::max<int64_t>(1, c.z().NumElements()));
}
// The reduction over the axes of the call, which stay; no axes are no axes here, not all of them.
NDArray Reduced(Call c, NDArray (*reduction)(const NDArray&, const Axes&, bool),
                const NDArray& values) {
  const uint32_t axes = c.attrs<ReduceAttributes>().axes;
  return axes == 0 ? values : reduction(values, AxesOf(axes, c.x().rank()), true);
}

Results OfSum(Call c) { return {Kept(c, c.dz).BroadcastTo(c.x().shape())}; }
// A reciprocal in double is exact enough for all types but its own.
Results OfMean(Call c) {
  const NDArray dz = Kept(c, c.dz);
  const double count = CountOfReduced(c);
  const NDArray part = dz.dtype() == DType::kFloat64 ? dz / count : ScaleShift(dz, 1 / count, -0.0);
  return {part.BroadcastTo(c.x().shape())};
}
Results OfVariance(Call c) {
  const auto divisor = static_cast<double>(c.attrs<ReduceAttributes>().ddof);
  const NDArray mean = Reduced(c, &Mean, c.x());
  return {Kept(c, c.dz) * (c.x() - mean) * (2 / std::max(0.0, CountOfReduced(c) - divisor))};
}
Results OfNorm1(Call c) { return {Kept(c, c.dz) * Sign(c.x())}; }
Results OfNorm2(Call c) {
  const NDArray norm = Kept(c, c.z());
  return {Where0(norm != 0, Kept(c, c.dz) * c.x() / norm)};
}
Results OfNormInf(Call c) {
  const NDArray chosen = Cast(Equal(Abs(c.x()), Kept(c, c.z())), c.x().dtype());
  return {Kept(c, c.dz) * Sign(c.x()) * (chosen / Reduced(c, &Sum, chosen))};
}
// The share of each: of x its logistic function of x - y, which is a number for infinities too.
template <bool kBaseTwo>
Results OfLogAddExp(Call c) {
  const NDArray difference = Where0(c.x(0) != c.x(1), c.x(0) - c.x(1));
  const NDArray share = Sigmoid(kBaseTwo ? difference * std::numbers::ln2 : difference);
  return {If(c, 0, [&] { return c.dz * share; }), If(c, 1, [&] { return c.dz * (1 - share); })};
}
Results OfLogSumExp(Call c) { return {Kept(c, c.dz) * Exp(c.x() - Kept(c, c.z()))}; }
// Equal elements share it.
Results OfExtreme(Call c) {
  const NDArray chosen = Cast(Equal(c.x(), Kept(c, c.z())), c.x().dtype());
  return {Kept(c, c.dz) * (chosen / Reduced(c, &Sum, chosen))};
}

NDArray Product(Call c, int input, const NDArray& x, const NDArray& y, bool transpose_x,
                bool transpose_y) {
  const MatMulAttributes attributes{.transpose_x = transpose_x, .transpose_y = transpose_y};
  NDArray* const destination = c.destination(input);
  if (destination == nullptr || destination->rank() != 2 || x.rank() != 2 || y.rank() != 2)
    return MatMul(x, y, attributes);
  MatMulInto(x, y, *destination, attributes);
  return *destination;
}
// [.., n] as one matrix.
NDArray Rows(const NDArray& x) {
  return x.ReshapeOrCopy(
      {x.NumElements() / std::max<int64_t>(1, x.dim(-1 + x.rank())), x.dim(x.rank() - 1)});
}
Results OfMatMul(Call c) {
  const auto& a = c.attrs<MatMulAttributes>();
  const NDArray& dz = c.dz;
  Results results(c.inputs.size());
  // The weights' first: what they were multiplied by goes before there is a gradient of it.
  if (c.wants(1)) {
    const NDArray &x = c.x(0), &y = c.x(1);
    if (y.rank() == 2 && x.rank() > 2 && !a.transpose_x && dz.NumElements() > 0 &&
        x.NumElements() > 0) {
      // One product of all rows instead of one of each matrix, which would be added up.
      results[1] = a.transpose_y ? Product(c, 1, Rows(dz), Rows(x), true, false)
                                 : Product(c, 1, Rows(x), Rows(dz), true, false);
    } else {
      results[1] = a.transpose_y ? Product(c, 1, dz, x, true, a.transpose_x)
                                 : Product(c, 1, x, dz, !a.transpose_x, false);
    }
  }
  c.Done(kX0);
  if (c.inputs[2] != nullptr && c.wants(2))
    results[2] = SumTo(dz, c.x(2).shape(), c.destination(2));
  if (c.wants(0)) {
    const NDArray& y = c.x(1);
    results[0] = a.transpose_x ? Product(c, 0, y, dz, a.transpose_y, true)
                               : Product(c, 0, dz, y, false, !a.transpose_y);
  }
  return results;
}

// Z = (X - mean) * scale / sqrt(variance + epsilon) + shift, by channels. Of f16 and bf16 in the statistics' type, rounded once.
Results OfBatchNormInference(Call c) {
  const NDArray &scale = c.x(1), &mean = c.x(3), &variance = c.x(4);
  const double epsilon = c.attrs<NormalizationAttributes>().epsilon;
  const Shape& channels = variance.shape();
  const auto inverse = [&] { return Rsqrt(variance + epsilon); };
  Results results(5);
  if (c.wants(1) || c.wants(4)) {
    const NDArray sum = SumTo(c.dz * (c.x(0) - mean), channels);
    if (c.wants(1)) results[1] = sum * inverse();
    if (c.wants(4)) results[4] = sum * scale * inverse() / (variance + epsilon) * -0.5;
  }
  if (c.wants(2)) results[2] = SumTo(c.dz, channels);
  if (c.wants(3)) results[3] = -SumTo(Cast(c.dz, mean.dtype()), channels) * scale * inverse();
  if (c.wants(0)) results[0] = Scaled(c, scale * inverse());
  return results;
}

Results OfDropout(Call c) {
  const auto& a = c.attrs<DropoutAttributes>();
  return {DropoutGrad(c.dz, a.rate, a.seed, a.stream)};
}
Results OfTriangle(Call c) {
  const auto& a = c.attrs<TriangleAttributes>();
  return {a.upper ? UpperTriangle(c.dz, a.diagonal) : LowerTriangle(c.dz, a.diagonal)};
}
Results OfCumSum(Call c) {
  const auto& a = c.attrs<CumSumAttributes>();
  return {CumSum(c.dz, a.axis, !a.reverse, a.exclusive)};
}
Results OfClip(Call c) {
  const auto& a = c.attrs<ClipAttributes>();
  return {Where0(LogicalAnd(c.x() >= a.low, c.x() <= a.high), c.dz)};
}

Results OfParametricRelu(Call c) {
  const NDArray &x = c.x(0), &slope = c.x(1);
  return {If(c, 0, [&] { return Where(x > 0, NumberLike(slope, 1), slope) * c.dz; }),
          If(c, 1, [&] { return Minimum(x, 0) * c.dz; })};
}

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402,
                 kTwoOverSqrtPi = 1.12837916709551257390;

constexpr ComposedGradient kComposedGradients[] = {
    {OpCode::kCopy, {}, [](Call c) -> Results { return {Cast(c.dz, c.x().dtype())}; }},
    {OpCode::kAdd,
     {},
     [](Call c) -> Results {
       return {c.dz, c.dz};
     }},
    {OpCode::kSubtract,
     {},
     [](Call c) -> Results {
       return {c.dz, If(c, 1, [&] { return -c.dz; })};
     }},
    {OpCode::kMultiply, {kX1, kX0}, &OfMultiply},
    {OpCode::kDivide,
     {kX1, kX1 | kZ},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return c.dz / c.x(1); }),
               If(c, 1, [&] { return -c.dz * c.z() / c.x(1); })};
     }},
    // Steps are none.
    {OpCode::kRemainder,
     {0, kBoth},
     [](Call c) -> Results {
       return {c.dz, If(c, 1, [&] { return -c.dz * FloorDivide(c.x(0), c.x(1)); })};
     }},
    {OpCode::kFMod,
     {0, kBoth | kZ},
     [](Call c) -> Results {
       return {c.dz, If(c, 1, [&] { return -c.dz * Round((c.x(0) - c.z()) / c.x(1)); })};
     }},
    {OpCode::kCopySign,
     {kX0 | kZ, 0},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return c.dz * Sign(c.x(0)) * Sign(c.z()); }),
               If(c, 1, [&] { return ZerosOf(c, 1); })};
     }},
    {OpCode::kMaximum,
     {kBoth, kBoth},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return Where0(c.x(0) >= c.x(1), c.dz); }),
               If(c, 1, [&] { return Where0(c.x(0) < c.x(1), c.dz); })};
     }},
    {OpCode::kMinimum,
     {kBoth, kBoth},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return Where0(c.x(0) <= c.x(1), c.dz); }),
               If(c, 1, [&] { return Where0(c.x(0) > c.x(1), c.dz); })};
     }},
    {OpCode::kPower,
     {kBoth, kX0 | kZ},
     [](Call c) -> Results {
       // x^0 is 1 everywhere, and 0^y a constant where it is finite: no slope, not 0 times infinity.
       const auto log = [&] {
         const NDArray flat = LogicalAnd(c.x(0) == 0, IsFinite(c.z()));
         return Log(Where(flat, NumberLike(c.x(0), 1), c.x(0)));
       };
       return {If(c, 0,
                  [&] {
                    const NDArray& y = c.x(1);
                    return c.dz * y * Power(c.x(0), Where0(y != 0, y - 1));
                  }),
               If(c, 1, [&] { return c.dz * c.z() * log(); })};
     }},
    {OpCode::kAtan2,
     {kBoth, kBoth},
     [](Call c) -> Results {
       const NDArray is_nowhere = LogicalAnd(c.x(0) == 0, c.x(1) == 0);
       const NDArray squares = Square(c.x(0)) + Square(c.x(1));
       const NDArray each = c.dz / Where(is_nowhere, NumberLike(squares, 1), squares);
       return {If(c, 0, [&] { return each * c.x(1); }), If(c, 1, [&] { return -each * c.x(0); })};
     }},
    {OpCode::kHypot,
     {kX0 | kZ, kX1 | kZ},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return c.dz * c.x(0) / c.z(); }),
               If(c, 1, [&] { return c.dz * c.x(1) / c.z(); })};
     }},
    {OpCode::kLogAddExp, {kX0 | kX1, kX0 | kX1}, OfLogAddExp<false>},
    {OpCode::kLogAddExp2, {kX0 | kX1, kX0 | kX1}, OfLogAddExp<true>},
    {OpCode::kParametricRelu, {kBoth, kX0}, &OfParametricRelu},
    {OpCode::kWhere,
     {0, kX0, kX0},
     [](Call c) -> Results {
       return {NDArray(), If(c, 1, [&] { return Where0(c.x(0), c.dz); }),
               If(c, 2, [&] { return Where0(LogicalNot(c.x(0)), c.dz); })};
     }},
    {OpCode::kScaleShift,
     {},
     [](Call c) -> Results { return {Scaled(c, c.attrs<ScaleShiftAttributes>().scale)}; }},
    {OpCode::kNegate, {}, [](Call c) -> Results { return {Scaled(c, -1)}; }},
    {OpCode::kAbs, {kX}, [](Call c) -> Results { return {Scaled(c, Sign(c.x()))}; }},
    {OpCode::kSquare, {kX}, [](Call c) -> Results { return {Scaled(c, c.x() * 2)}; }},
    {OpCode::kClip, {kX}, &OfClip},
    {OpCode::kSqrt, {kZ}, [](Call c) -> Results { return {c.dz / c.z() * 0.5}; }},
    {OpCode::kRsqrt, {kX | kZ}, [](Call c) -> Results { return {c.dz * c.z() / c.x() * -0.5}; }},
    {OpCode::kReciprocal, {kZ}, [](Call c) -> Results { return {-c.dz * Square(c.z())}; }},
    {OpCode::kCbrt, {kZ}, [](Call c) -> Results { return {c.dz / (Square(c.z()) * 3)}; }},
    {OpCode::kExp, {kZ}, [](Call c) -> Results { return {Scaled(c, c.z())}; }},
    {OpCode::kExp2, {kZ}, [](Call c) -> Results { return {c.dz * c.z() * kLn2}; }},
    {OpCode::kExpm1, {kX}, [](Call c) -> Results { return {Scaled(c, Exp(c.x()))}; }},
    {OpCode::kLog, {kX}, [](Call c) -> Results { return {c.dz / c.x()}; }},
    {OpCode::kLog2, {kX}, [](Call c) -> Results { return {c.dz / (c.x() * kLn2)}; }},
    {OpCode::kLog10, {kX}, [](Call c) -> Results { return {c.dz / (c.x() * kLn10)}; }},
    {OpCode::kLog1p, {kX}, [](Call c) -> Results { return {c.dz / (c.x() + 1)}; }},
    {OpCode::kSin, {kX}, [](Call c) -> Results { return {Scaled(c, Cos(c.x()))}; }},
    {OpCode::kCos, {kX}, [](Call c) -> Results { return {-c.dz * Sin(c.x())}; }},
    {OpCode::kTan, {kZ}, [](Call c) -> Results { return {Scaled(c, Square(c.z()) + 1)}; }},
    {OpCode::kAsin,
     {kX},
     [](Call c) -> Results { return {Scaled(c, Rsqrt((1 - c.x()) * (1 + c.x())))}; }},
    {OpCode::kAcos,
     {kX},
     [](Call c) -> Results { return {-c.dz * Rsqrt((1 - c.x()) * (1 + c.x()))}; }},
    {OpCode::kAtan, {kX}, [](Call c) -> Results { return {c.dz / (Square(c.x()) + 1)}; }},
    {OpCode::kSinh, {kX}, [](Call c) -> Results { return {Scaled(c, Cosh(c.x()))}; }},
    {OpCode::kCosh, {kX}, [](Call c) -> Results { return {Scaled(c, Sinh(c.x()))}; }},
    {OpCode::kAsinh, {kX}, [](Call c) -> Results { return {Scaled(c, Rsqrt(Square(c.x()) + 1))}; }},
    {OpCode::kAcosh,
     {kX},
     [](Call c) -> Results { return {Scaled(c, Rsqrt((c.x() - 1) * (c.x() + 1)))}; }},
    {OpCode::kAtanh, {kX}, [](Call c) -> Results { return {c.dz / ((1 - c.x()) * (1 + c.x()))}; }},
    {OpCode::kErf,
     {kX},
     [](Call c) -> Results { return {Scaled(c, Exp(-Square(c.x())) * kTwoOverSqrtPi)}; }},
    {OpCode::kSum, {}, &OfSum},
    {OpCode::kMean, {}, &OfMean},
    {OpCode::kVariance, {kX}, &OfVariance},
    {OpCode::kNorm1, {kX}, &OfNorm1},
    {OpCode::kNorm2, {kX | kZ}, &OfNorm2},
    {OpCode::kNormInf, {kX | kZ}, &OfNormInf},
    {OpCode::kLogSumExp, {kX | kZ}, &OfLogSumExp},
    {OpCode::kMax, {kX | kZ}, &OfExtreme},
    {OpCode::kMin, {kX | kZ}, &OfExtreme},
    {OpCode::kGather,
     {kX1},
     [](Call c) -> Results {
       return {GatherGrad(c.dz, c.x(1), c.x(0).shape(), c.attrs<AxisAttributes>().axis)};
     }},
    {OpCode::kFlip,
     {},
     [](Call c) -> Results {
       const uint32_t axes = c.attrs<FlipAttributes>().axes;
       return {axes == 0 ? c.dz : Flip(c.dz, AxesOf(axes, c.x().rank()))};
     }},
    {OpCode::kTriangle, {}, &OfTriangle},
    {OpCode::kCumSum, {}, &OfCumSum},
    {OpCode::kMatMul, {kX1, kX0, 0}, &OfMatMul},
    {OpCode::kDropout, {}, &OfDropout},
    {OpCode::kBatchNormInference,
     {InputBit(1) | InputBit(4), kX0 | InputBit(3) | InputBit(4), 0, InputBit(1) | InputBit(4),
      kX0 | InputBit(1) | InputBit(3) | InputBit(4)},
     &OfBatchNormInference},
};

}  // namespace

const ComposedGradient* ComposedGradientOf(OpCode op) {
  for (const ComposedGradient& composed : kComposedGradients) {
    if (composed.op == op) return &composed;
  }
  const ComposedGradient* const of_order = OrderGradientOf(op);
  return of_order != nullptr ? of_order : SecondGradientOf(op);
}

NDArray SumTo(const NDArray& dz, const Shape& shape, NDArray* destination) {
  if (dz.shape() == shape) return dz;
  int summed[kMaxRank];
  int count = 0;
  const int added = dz.rank() - shape.rank();
  for (int i = 0; i < dz.rank(); ++i) {
    if (i < added || (shape[i - added] == 1 && dz.dim(i) != 1)) summed[count++] = i;
  }
  if (count == 0) return dz;
  const Axes axes(absl::MakeConstSpan(summed, static_cast<size_t>(count)));
  if (destination == nullptr || shape.rank() != dz.rank() - count) {
    return Sum(dz, axes).ReshapeOrCopy(shape);
  }
  SumInto(dz, axes, *destination);
  return *destination;
}

}  // namespace tidepool
