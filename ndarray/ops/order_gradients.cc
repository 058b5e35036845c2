// Gradients of operators that order, pick, place and multiply elements along axes.
#include <algorithm>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/composed_gradients.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/scalar_operand.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

using Call = const GradientCall&;
using Results = GradientResults;

constexpr OperandSet kX = InputBit(0), kY = InputBit(1), kIndices = InputBit(1), kZ = OutputBit(0);

NDArray NumberLike(const NDArray& x, double value) { return ScalarOperand(value, x.dtype(), x); }

// Products of many 16-bit floats would overflow where their gradient does not.
NDArray Wide(const NDArray& x) { return DTypeBytes(x.dtype()) == 2 ? Cast(x, DType::kFloat32) : x; }

// Each element is the product of all others of its row, by those before and those behind it: zeros are no matter, as they are where
// the product is divided by the element.
Results OfProd(Call c) {
  const uint32_t reduced = c.attrs<ReduceAttributes>().axes;
  const NDArray& x = c.x();
  std::vector<int> order, back(static_cast<size_t>(x.rank()));
  int64_t count = 1;
  for (const uint32_t wanted : {0u, 1u}) {
    for (int i = 0; i < x.rank(); ++i) {
      if ((reduced >> i & 1) != wanted) continue;
      back[static_cast<size_t>(i)] = static_cast<int>(order.size());
      order.push_back(i);
      if (wanted == 1) count *= x.dim(i);
    }
  }
  const NDArray moved = x.Transpose(order);
  const int64_t rows = c.z().NumElements();
  const NDArray each = Wide(moved).ReshapeOrCopy({rows, count});
  const NDArray others = CumProd(each, 1, false, true) * CumProd(each, 1, true, true);
  const NDArray dx = others * Wide(c.dz).ReshapeOrCopy({rows, 1});
  return {dx.Reshape(moved.shape()).Transpose(back)};
}

// For gradients of this gradient, which a zero has with respect to elements behind it: the products without x[k], for each k. Takes a
// square of each row.
NDArray CumProdByEach(Call c) {
  const auto& a = c.attrs<CumSumAttributes>();
  const int rank = c.x().rank();
  std::vector<int> swap(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) swap[static_cast<size_t>(i)] = i;
  std::swap(swap[static_cast<size_t>(a.axis)], swap.back());
  const NDArray moved = c.x().Transpose(swap);
  const int64_t count = moved.dim(rank - 1);
  const Shape rows{c.x().NumElements() / std::max<int64_t>(1, count), 1, count};
  const NDArray x = Wide(moved).ReshapeOrCopy(rows),
                dz = Wide(c.dz.Transpose(swap)).ReshapeOrCopy(rows),
                diagonal = Eye(count, count, 0, DType::kBool, Place::CurrentOn(x.device()));
  const NDArray each =
      CumProd(Where(diagonal, NumberLike(x, 1), x), 2, a.reverse, a.exclusive) * dz;
  const int64_t next = a.exclusive ? 1 : 0;
  const NDArray later = a.reverse ? LowerTriangle(each, -next) : UpperTriangle(each, next);
  return Sum(later, 2).Reshape(moved.shape()).Transpose(swap);
}

// d z[i] / d x[k] is z[i] / x[k]. From the first zero on all products are 0, and only those behind it have a gradient, with respect to
// that zero: the products with 1 in its place.
Results OfCumProd(Call c) {
  const auto& a = c.attrs<CumSumAttributes>();
  const CallRecorder* const recorder = CallRecorder::Current();
  if (recorder != nullptr && (recorder->Follows({&c.x(), 1}) || recorder->Follows({&c.dz, 1})))
    return {CumProdByEach(c)};
  const NDArray x = Wide(c.x()), dz = Wide(c.dz);
  const auto sums = [&](const NDArray& products) {
    return CumSum(dz * products, a.axis, !a.reverse, a.exclusive);
  };
  const NDArray is_zero = x == 0, zeros = CumSum(is_zero, a.axis, a.reverse),
                is_first = LogicalAnd(is_zero, zeros == 1);
  const NDArray zero = NumberLike(x, 0), one = NumberLike(x, 1);
  const NDArray before = sums(Wide(c.z())) / Where(is_zero, one, x);
  const NDArray without = CumProd(Where(is_first, one, x), a.axis, a.reverse, a.exclusive);
  return {Where(zeros == 0, before, Where(is_first, sums(without), zero))};
}

// Back to where each came from.
Results OfSort(Call c) {
  const auto& a = c.attrs<SortAttributes>();
  const NDArray rank = ArgSort(ArgSort(c.x(), a.axis, a.descending), a.axis);
  return {Gather(c.dz, a.axis, rank)};
}

Results OfTopK(Call c) {
  const NDArray zeros = Zeros(c.x().shape(), c.dz.dtype(), Place::CurrentOn(c.dz.device()));
  return {
      Scatter(zeros, c.attrs<AxisAttributes>().axis, *c.outputs[1], c.dz, ScatterReduction::kAdd)};
}

// To the one that was taken: the other of a NaN, and X where both are equal.
Results OfPicked(Call c, const NDArray& takes_x) {
  const auto where = [&](const NDArray& taken) { return Where(taken, c.dz, NumberLike(c.dz, 0)); };
  return {c.wants(0) ? where(takes_x) : NDArray(),
          c.wants(1) ? where(LogicalNot(takes_x)) : NDArray()};
}
Results OfFMax(Call c) { return OfPicked(c, LogicalOr(c.x(0) >= c.x(1), IsNan(c.x(1)))); }
Results OfFMin(Call c) { return OfPicked(c, LogicalOr(c.x(0) <= c.x(1), IsNan(c.x(1)))); }

// Z goes on to what it held, and what was added is what is read here.
Results OfScatterAdd(Call c) { return {Gather(c.dz, c.x(1), c.attrs<AxisAttributes>().axis)}; }

Results OfScatter(Call c) {
  const ScatterReduction reduction = c.attrs<ScatterAttributes>().reduction;
  const NDArray& places = c.x(1);
  if (reduction != ScatterReduction::kNone && reduction != ScatterReduction::kAdd) {
    ThrowUnimplemented(
        "Op [scatter]: there is no gradient with respect to its updates, by which it multiplies or "
        "of which it takes the smaller or "
        "larger, and one flows to them");
  }
  const int64_t elements = c.z().NumElements(), count = places.NumElements();
  const NDArray found = Gather(c.dz.ReshapeOrCopy({elements}), places);
  if (reduction == ScatterReduction::kAdd || count == 0) return {found};
  // Of those with one place the last has stayed.
  const Place scratch = Place::Scratch(places.device());
  const NDArray each =
      Arange(0, static_cast<double>(count), 1, DType::kInt64, scratch).Reshape(places.shape());
  NDArray last = Zeros({elements}, DType::kInt64, scratch);
  Dispatch(OpCode::kScatter, {&each, &places}, {&last}, &c.attrs<ScatterAttributes>());
  return {Where(Equal(Gather(last, places), each), found, NumberLike(found, 0))};
}

constexpr ComposedGradient kOrderGradients[] = {
    {OpCode::kProd, {kX}, &OfProd},
    {OpCode::kCumProd, {kX | kZ}, &OfCumProd},
    {OpCode::kSort, {kX}, &OfSort},
    {OpCode::kTopK, {OutputBit(1)}, &OfTopK},
    {OpCode::kFMax, {kX | kY, kX | kY}, &OfFMax},
    {OpCode::kFMin, {kX | kY, kX | kY}, &OfFMin},
    {OpCode::kScatterAdd, {kIndices}, &OfScatterAdd},
    {OpCode::kScatter, {kIndices}, &OfScatter},
};

}  // namespace

const ComposedGradient* OrderGradientOf(OpCode op) {
  for (const ComposedGradient& composed : kOrderGradients) {
    if (composed.op == op) return &composed;
  }
  return nullptr;
}

}  // namespace tidepool
