#include "tidepool/ndarray/ops/composed_gradients.h"

#include <algorithm>
#include <cmath>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using Call = const GradientCall&;
using Results = std::vector<NDArray>;

// `values` where the condition holds, else 0.
NDArray Where0(const NDArray& condition, const NDArray& values) {
  return Where(condition, values, FromScalar(0, values.dtype(), Place::Scratch(values.device())));
}

Axes AxesOf(uint32_t mask, int rank) {
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i) {
    if ((mask >> i & 1) != 0) axes.push_back(i);
  }
  return axes;
}

// Of a reduction: `values` of the result's shape with the axes of X that it is without, of one element.
NDArray Kept(Call c, const NDArray& values) {
  const uint32_t axes = c.attrs<ReduceAttributes>().axes;
  std::vector<int64_t> dims;
  for (int i = 0; i < c.x().rank(); ++i) dims.push_back((axes >> i & 1) != 0 ? 1 : c.x().dim(i));
  return values.ReshapeOrCopy(Shape(dims));
}
double CountOfReduced(Call c) {
  return static_cast<double>(c.x().NumElements()) / static_cast<double>(std::max<int64_t>(1, c.z().NumElements()));
}
// The reduction over the axes of the call, which stay; no axes are no axes here, not all of them.
NDArray Reduced(Call c, NDArray (*reduction)(const NDArray&, const Axes&, bool), const NDArray& values) {
  const uint32_t axes = c.attrs<ReduceAttributes>().axes;
  return axes == 0 ? values : reduction(values, AxesOf(axes, c.x().rank()), true);
}

Results OfSum(Call c) { return {Kept(c, c.dz).BroadcastTo(c.x().shape()).Dup()}; }
Results OfMean(Call c) { return {(Kept(c, c.dz) / CountOfReduced(c)).BroadcastTo(c.x().shape()).Dup()}; }
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
Results OfLogSumExp(Call c) { return {Kept(c, c.dz) * Exp(c.x() - Kept(c, c.z()))}; }
// Equal elements share it.
Results OfExtreme(Call c) {
  const NDArray chosen = Cast(Equal(c.x(), Kept(c, c.z())), c.x().dtype());
  return {Kept(c, c.dz) * (chosen / Reduced(c, &Sum, chosen))};
}

NDArray Product(const NDArray& x, const NDArray& y, bool transpose_x, bool transpose_y) {
  return MatMul(x, y, MatMulAttributes{.transpose_x = transpose_x, .transpose_y = transpose_y});
}
Results OfMatMul(Call c) {
  const auto& a = c.attrs<MatMulAttributes>();
  const NDArray dz = a.relu ? ReluGrad(c.z(), c.dz) : c.dz;
  const NDArray &x = c.x(0), &y = c.x(1);
  Results results = {a.transpose_x ? Product(y, dz, a.transpose_y, true) : Product(dz, y, false, !a.transpose_y),
                     a.transpose_y ? Product(dz, x, true, a.transpose_x) : Product(x, dz, !a.transpose_x, false)};
  if (c.inputs[2] != nullptr) results.push_back(dz);
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

struct Composed {
  OpCode op;
  GradientFunction function;
};

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402,
                 kTwoOverSqrtPi = 1.12837916709551257390;

constexpr Composed kComposedGradients[] = {
    {OpCode::kCopy, [](Call c) -> Results { return {Cast(c.dz, c.x().dtype())}; }},
    {OpCode::kAdd, [](Call c) -> Results { return {c.dz, c.dz}; }},
    {OpCode::kSubtract, [](Call c) -> Results { return {c.dz, -c.dz}; }},
    {OpCode::kMultiply, [](Call c) -> Results { return {c.dz * c.x(1), c.dz * c.x(0)}; }},
    {OpCode::kDivide, [](Call c) -> Results { return {c.dz / c.x(1), -c.dz * c.z() / c.x(1)}; }},
    {OpCode::kMaximum,
     [](Call c) -> Results { return {Where0(c.x(0) >= c.x(1), c.dz), Where0(c.x(0) < c.x(1), c.dz)}; }},
    {OpCode::kMinimum,
     [](Call c) -> Results { return {Where0(c.x(0) <= c.x(1), c.dz), Where0(c.x(0) > c.x(1), c.dz)}; }},
    {OpCode::kPower,
     [](Call c) -> Results { return {c.dz * c.x(1) * Power(c.x(0), c.x(1) - 1), c.dz * c.z() * Log(c.x(0))}; }},
    {OpCode::kAtan2,
     [](Call c) -> Results {
       const NDArray each = c.dz / (Square(c.x(0)) + Square(c.x(1)));
       return {each * c.x(1), -each * c.x(0)};
     }},
    {OpCode::kHypot, [](Call c) -> Results { return {c.dz * c.x(0) / c.z(), c.dz * c.x(1) / c.z()}; }},
    {OpCode::kLogAddExp,
     [](Call c) -> Results { return {c.dz * Exp(c.x(0) - c.z()), c.dz * Exp(c.x(1) - c.z())}; }},
    {OpCode::kWhere,
     [](Call c) -> Results { return {NDArray(), Where0(c.x(0), c.dz), Where0(LogicalNot(c.x(0)), c.dz)}; }},
    {OpCode::kScaleShift, [](Call c) -> Results { return {c.dz * c.attrs<ScaleShiftAttributes>().scale}; }},
    {OpCode::kNegate, [](Call c) -> Results { return {-c.dz}; }},
    {OpCode::kAbs, [](Call c) -> Results { return {c.dz * Sign(c.x())}; }},
    {OpCode::kSquare, [](Call c) -> Results { return {c.dz * c.x() * 2}; }},
    {OpCode::kClip, &OfClip},
    {OpCode::kSqrt, [](Call c) -> Results { return {c.dz / c.z() * 0.5}; }},
    {OpCode::kRsqrt, [](Call c) -> Results { return {c.dz * c.z() / c.x() * -0.5}; }},
    {OpCode::kReciprocal, [](Call c) -> Results { return {-c.dz * Square(c.z())}; }},
    {OpCode::kCbrt, [](Call c) -> Results { return {c.dz / (Square(c.z()) * 3)}; }},
    {OpCode::kExp, [](Call c) -> Results { return {c.dz * c.z()}; }},
    {OpCode::kExp2, [](Call c) -> Results { return {c.dz * c.z() * kLn2}; }},
    {OpCode::kExpm1, [](Call c) -> Results { return {c.dz * Exp(c.x())}; }},
    {OpCode::kLog, [](Call c) -> Results { return {c.dz / c.x()}; }},
    {OpCode::kLog2, [](Call c) -> Results { return {c.dz / (c.x() * kLn2)}; }},
    {OpCode::kLog10, [](Call c) -> Results { return {c.dz / (c.x() * kLn10)}; }},
    {OpCode::kLog1p, [](Call c) -> Results { return {c.dz / (c.x() + 1)}; }},
    {OpCode::kSin, [](Call c) -> Results { return {c.dz * Cos(c.x())}; }},
    {OpCode::kCos, [](Call c) -> Results { return {-c.dz * Sin(c.x())}; }},
    {OpCode::kTan, [](Call c) -> Results { return {c.dz * (Square(c.z()) + 1)}; }},
    {OpCode::kAsin, [](Call c) -> Results { return {c.dz * Rsqrt((1 - c.x()) * (1 + c.x()))}; }},
    {OpCode::kAcos, [](Call c) -> Results { return {-c.dz * Rsqrt((1 - c.x()) * (1 + c.x()))}; }},
    {OpCode::kAtan, [](Call c) -> Results { return {c.dz / (Square(c.x()) + 1)}; }},
    {OpCode::kSinh, [](Call c) -> Results { return {c.dz * Cosh(c.x())}; }},
    {OpCode::kCosh, [](Call c) -> Results { return {c.dz * Sinh(c.x())}; }},
    {OpCode::kAsinh, [](Call c) -> Results { return {c.dz * Rsqrt(Square(c.x()) + 1)}; }},
    {OpCode::kAcosh, [](Call c) -> Results { return {c.dz * Rsqrt((c.x() - 1) * (c.x() + 1))}; }},
    {OpCode::kAtanh, [](Call c) -> Results { return {c.dz / ((1 - c.x()) * (1 + c.x()))}; }},
    {OpCode::kErf, [](Call c) -> Results { return {c.dz * Exp(-Square(c.x())) * kTwoOverSqrtPi}; }},
    {OpCode::kSum, &OfSum},
    {OpCode::kMean, &OfMean},
    {OpCode::kVariance, &OfVariance},
    {OpCode::kNorm1, &OfNorm1},
    {OpCode::kNorm2, &OfNorm2},
    {OpCode::kLogSumExp, &OfLogSumExp},
    {OpCode::kMax, &OfExtreme},
    {OpCode::kMin, &OfExtreme},
    {OpCode::kGather,
     [](Call c) -> Results {
       return {GatherGrad(c.dz, c.x(1), c.x(0).shape(), c.attrs<AxisAttributes>().axis)};
     }},
    {OpCode::kFlip,
     [](Call c) -> Results {
       const uint32_t axes = c.attrs<FlipAttributes>().axes;
       return {axes == 0 ? c.dz : Flip(c.dz, AxesOf(axes, c.x().rank()))};
     }},
    {OpCode::kTriangle, &OfTriangle},
    {OpCode::kCumSum, &OfCumSum},
    {OpCode::kMatMul, &OfMatMul},
    {OpCode::kDropout, &OfDropout},
};

}  // namespace

GradientFunction ComposedGradientOf(OpCode op) {
  for (const Composed& composed : kComposedGradients) {
    if (composed.op == op) return composed.function;
  }
  return nullptr;
}

NDArray SumTo(const NDArray& dz, const Shape& shape) {
  if (dz.shape() == shape) return dz;
  std::vector<int> axes;
  const int added = dz.rank() - shape.rank();
  for (int i = 0; i < dz.rank(); ++i) {
    if (i < added || (shape[i - added] == 1 && dz.dim(i) != 1)) axes.push_back(i);
  }
  if (axes.empty()) return dz;
  return Sum(dz, axes).ReshapeOrCopy(shape);
}

}  // namespace tidepool
