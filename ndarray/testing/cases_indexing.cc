#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <vector>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

Shape ShapeOf(const std::vector<int64_t>& dims) { return Shape(absl::Span<const int64_t>(dims)); }

std::vector<int64_t> Dims(const Shape& shape) {
  return std::vector<int64_t>(shape.dims(), shape.dims() + shape.rank());
}

DType IndexType(CaseValues& m) { return m.Chance(0.7) ? DType::kInt64 : DType::kInt32; }

// Shapes around one axis of at least `least` elements.
std::vector<int64_t> DimsWithAxis(CaseValues& m, int least_rank, int64_t least, int* axis) {
  std::vector<int64_t> dims = Dims(m.AnyShape(least_rank, 4));
  *axis = static_cast<int>(m.Int(0, static_cast<int64_t>(dims.size()) - 1));
  dims[*axis] = std::max(least, dims[*axis]);
  return dims;
}

void GatherOrScatter(CaseValues& m, OpCase& c) {
  AxisAttributes a;
  const std::vector<int64_t> dims = DimsWithAxis(m, 1, 1, &a.axis);
  std::vector<int64_t> picked;  // of about as many elements as there are
  for (int64_t rank = m.Int(0, 2); rank > 0; --rank) picked.push_back(m.Size(65));
  // Enough for several threads, now and then.
  int64_t most = 2500;
  if (m.Chance(0.01)) picked = {m.Int(2000, 9000)}, most = 60000;
  int64_t rest = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (static_cast<int>(i) != a.axis) rest *= std::max<int64_t>(1, dims[i]);
  }
  for (int64_t& size : picked) {
    while (size > 1 && size * rest > most) size /= 2;
    rest *= std::max<int64_t>(1, size);
  }
  std::vector<int64_t> result = dims;
  result.erase(result.begin() + a.axis);
  result.insert(result.begin() + a.axis, picked.begin(), picked.end());
  const OperandValues indices = m.Ints(ShapeOf(picked), 0, dims[a.axis] - 1, IndexType(m));
  c.attributes = a;
  if (c.op == OpCode::kGather) {
    c.inputs = {m.Numbers(c.dtype, ShapeOf(dims), m.Chance(0.3)), indices};
    c.outputs = {m.Result(c.dtype, ShapeOf(result))};
    return;
  }
  c.inputs = {m.Numbers(c.dtype, ShapeOf(result), m.Chance(0.2)), indices};
  c.outputs = {m.Numbers(c.dtype, ShapeOf(dims), false)};
  c.inner = 1 + static_cast<double>(indices.ints.size());
}

void OneHot(CaseValues& m, OpCase& c) {
  const int64_t depth = m.NonZero(65);
  std::vector<int64_t> dims = Dims(m.AnyShape(0, 3));
  int64_t most = 150;
  for (int64_t& size : dims) {
    size = std::min<int64_t>(size, most);
    most /= std::max<int64_t>(1, size);
  }
  c.attributes =
      OneHotAttributes{m.Chance(0.5) ? 1 : m.Real(-3, 3), m.Chance(0.5) ? 0 : m.Real(-3, 3)};
  c.inputs = {m.Ints(ShapeOf(dims), 0, depth - 1, IndexType(m))};
  dims.push_back(depth);
  c.outputs = {m.Result(c.dtype, ShapeOf(dims))};
}

void FlipOrTriangle(CaseValues& m, OpCase& c) {
  const bool flip = c.op == OpCode::kFlip;
  const Shape shape = m.AnyShape(flip ? 0 : 2, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.3))};
  c.outputs = {m.Result(c.dtype, shape)};
  if (flip) {
    c.attributes = FlipAttributes{static_cast<uint32_t>(m.Int(0, (1 << shape.rank()) - 1))};
  } else {
    c.attributes = TriangleAttributes{m.Chance(0.5), m.Chance(0.3) ? 0 : m.Int(-20, 20)};
  }
}

void Ordering(CaseValues& m, OpCase& c) {
  SortAttributes a;
  std::vector<int64_t> dims = DimsWithAxis(m, 1, c.op == OpCode::kTopK ? 1 : 0, &a.axis);
  if (m.Chance(0.03))
    dims = {m.Int(1, 3), m.Int(300, 3000)}, a.axis = static_cast<int>(m.Int(0, 1));
  a.descending = m.Chance(0.5);
  c.inputs = {m.Numbers(c.dtype, ShapeOf(dims), m.Chance(0.4))};
  if (m.Chance(0.5)) m.MakeTies(&c.inputs[0]);
  if (c.op == OpCode::kTopK) {
    c.attributes = AxisAttributes{a.axis};
    dims[a.axis] =
        m.Chance(0.5) ? m.Int(1, std::min<int64_t>(8, dims[a.axis])) : m.Int(0, dims[a.axis]);
    c.outputs = {m.Result(c.dtype, ShapeOf(dims)), m.Result(DType::kInt64, ShapeOf(dims))};
    return;
  }
  c.attributes = a;
  const DType type = c.op == OpCode::kSort ? c.dtype : DType::kInt64;
  c.outputs = {m.Result(type, ShapeOf(dims))};
}

// Products stay far from overflow and underflow.
void Cumulative(CaseValues& m, OpCase& c) {
  CumSumAttributes a;
  const std::vector<int64_t> dims = DimsWithAxis(m, 1, 0, &a.axis);
  a.reverse = m.Chance(0.4);
  a.exclusive = m.Chance(0.4);
  c.attributes = a;
  c.inputs = {m.Numbers(c.dtype, ShapeOf(dims), m.Chance(0.3))};
  c.outputs = {m.Result(TotalType(c.dtype), ShapeOf(dims))};
  c.inner = static_cast<double>(std::max<int64_t>(1, dims[a.axis]));
  if (c.op != OpCode::kCumProd) return;
  for (double& value : c.inputs[0].reals) value = 1 + value * 0.5 / c.inner;
}

void Scatter(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 3);
  std::vector<int64_t> dims = Dims(shape);
  for (int64_t& size : dims) size = std::max<int64_t>(1, size);
  const Shape places = m.AnyShape(0, 3);
  const bool any = c.dtype == DType::kBool || m.Chance(0.3);
  const ScatterReduction choice[] = {ScatterReduction::kNone, ScatterReduction::kMin,
                                     ScatterReduction::kMax, ScatterReduction::kAdd,
                                     ScatterReduction::kMultiply};
  c.attributes = ScatterAttributes{choice[m.Int(0, any ? 2 : 4)]};
  c.inputs = {m.Numbers(c.dtype, places, m.Chance(0.2)),
              m.Ints(places, 0, ShapeOf(dims).NumElements() - 1, DType::kInt64)};
  c.outputs = {m.Numbers(c.dtype, ShapeOf(dims), false)};
  c.inner = 1 + static_cast<double>(places.NumElements());
}

void SearchSorted(CaseValues& m, OpCase& c) {
  const Shape values = m.AnyShape(0, 3);
  c.attributes = SearchSortedAttributes{m.Chance(0.5)};
  c.inputs = {m.Numbers(c.dtype, Shape{m.Size(257)}, m.Chance(0.3)),
              m.Numbers(c.dtype, values, m.Chance(0.3))};
  for (OperandValues& input : c.inputs) {
    if (m.Chance(0.5)) m.MakeTies(&input);
  }
  std::sort(c.inputs[0].reals.begin(), c.inputs[0].reals.end(),
            [](double a, double b) { return a < b || (a == a && b != b); });
  // Integers beyond the type wrap later, so that they would not be in order.
  VisitDType(c.dtype, [&](auto t) {
    for (int64_t& value : c.inputs[0].ints)
      value = ConvertElement<int64_t>(ConvertElement<decltype(t)>(value));
  });
  std::sort(c.inputs[0].ints.begin(), c.inputs[0].ints.end());
  c.outputs = {m.Result(DType::kInt64, values)};
}

}  // namespace

CaseMaker FindIndexingCases(OpCode op) {
  switch (op) {
    case OpCode::kGather:
    case OpCode::kScatterAdd:
      return &GatherOrScatter;
    case OpCode::kOneHot:
      return &OneHot;
    case OpCode::kFlip:
    case OpCode::kTriangle:
      return &FlipOrTriangle;
    case OpCode::kSort:
    case OpCode::kArgSort:
    case OpCode::kTopK:
      return &Ordering;
    case OpCode::kCumSum:
    case OpCode::kCumProd:
      return &Cumulative;
    case OpCode::kScatter:
      return &Scatter;
    case OpCode::kSearchSorted:
      return &SearchSorted;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
