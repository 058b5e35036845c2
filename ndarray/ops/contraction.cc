#include "tidepool/ndarray/ops/contraction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

[[noreturn]] void Refuse(const char* op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", what));
}

class Contraction {
 public:
  Contraction(const char* op, std::vector<Term> terms, AxisLabels output)
      : op_(op), terms_(std::move(terms)), output_(std::move(output)) {
    std::vector<DType> types;
    for (const Term& term : terms_) types.push_back(term.array.dtype());
    dtype_ = PromoteTypes(types);
    if (dtype_ == DType::kBool)
      Refuse(op_, "operands are bool, expected numbers; Cast them, or use LogicalAnd and Any");
    FindSizes();
  }

  NDArray Run(const Place& place) {
    NDArray z(ShapeOf(output_), dtype_, place);
    if (z.NumElements() == 0) return z;
    device_ = z.device();
    // Products of products have more digits than floats of 16 bits.
    const bool halves = IsFloating(dtype_) && DTypeBytes(dtype_) == 2 && terms_.size() > 2;
    const DType type = halves ? DType::kFloat32 : ProductType(dtype_);
    for (size_t i = 0; i < terms_.size(); ++i) {
      terms_[i].array = CastScratch(terms_[i].array, type);
      Simplify(&terms_[i], NeededBeside(i, i));
    }
    while (terms_.size() > 1) {
      const auto [i, j] = NextPair();
      const AxisLabels needed = NeededBeside(i, j);
      NDArray* target = terms_.size() == 2 && type == dtype_ ? &z : nullptr;
      terms_[i] = Product(terms_[i], terms_[j], needed, target);
      terms_.erase(terms_.begin() + static_cast<int64_t>(j));
      if (terms_[0].array.raw_data() == z.raw_data()) return z;
    }
    CopyInto(Aligned(terms_[0], output_), z);
    return z;
  }

 private:
  Shape ShapeOf(const AxisLabels& labels) const {
    std::vector<int64_t> dims;
    for (const char label : labels) dims.push_back(size(label));
    if (dims.size() > kMaxRank) {
      Refuse(op_, absl::StrCat("a result of rank ", dims.size(), ", expected at most ", kMaxRank));
    }
    return Shape(dims);
  }
  int64_t size(char label) const { return sizes_[static_cast<int>(label)]; }
  double Elements(const AxisLabels& labels) const {
    double product = 1;
    for (const char label : labels) product *= static_cast<double>(size(label));
    return product;
  }

  // The size of each label; axes of 1 where others have more are left out, so that nothing has to broadcast.
  void FindSizes() {
    std::fill_n(sizes_, 128, -1);
    for (size_t t = 0; t < terms_.size(); ++t) {
      for (int i = 0; i < terms_[t].array.rank(); ++i) {
        const int64_t found = terms_[t].array.dim(i);
        int64_t& known = sizes_[static_cast<int>(terms_[t].labels[i])];
        if (known >= 0 && known != 1 && found != 1 && found != known) {
          Refuse(op_, absl::StrCat("operand ", t, " of shape ", terms_[t].array.shape().ToString(),
                                   " has ", found, " for ", NameOfLabel(terms_[t].labels[i]),
                                   ", expected ", known, " as before, or 1"));
        }
        if (known < 0 || known == 1) known = found;
      }
    }
    for (Term& term : terms_) {
      for (int i = term.array.rank() - 1; i >= 0; --i) {
        if (term.array.dim(i) == 1 && size(term.labels[i]) != 1) {
          term.array = term.array.Index(i, 0);
          term.labels.erase(i, 1);
        }
      }
    }
  }

  // What is asked of terms i and j together: labels of the result and of other terms.
  AxisLabels NeededBeside(size_t i, size_t j) const {
    AxisLabels needed = output_;
    for (size_t t = 0; t < terms_.size(); ++t) {
      if (t != i && t != j) needed += terms_[t].labels;
    }
    return needed;
  }

  // Diagonals of repeated labels, sums over those that nobody else needs.
  void Simplify(Term* term, const AxisLabels& needed) const {
    AxisLabels& labels = term->labels;
    for (size_t i = 0; i < labels.size(); ++i) {
      for (size_t j = labels.size() - 1; j > i; --j) {
        if (labels[i] != labels[j]) continue;
        const char label = labels[i];
        term->array = term->array.Diagonal(0, static_cast<int>(i), static_cast<int>(j));
        labels.erase(j, 1).erase(i, 1).push_back(label);  // the diagonal is the last axis
        i = static_cast<size_t>(-1);
        break;
      }
    }
    std::vector<int> summed;
    AxisLabels kept;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (HasLabel(needed, labels[i])) {
        kept.push_back(labels[i]);
      } else {
        summed.push_back(static_cast<int>(i));
      }
    }
    if (!summed.empty()) *term = {SumOf(term->array, summed, ShapeOf(kept)), kept};
  }

  NDArray Scratch(const Shape& shape, DType dtype) const {
    return NDArray(shape, dtype, Place::Scratch(device_));
  }

  NDArray SumOf(const NDArray& x, const std::vector<int>& axes, const Shape& shape) const {
    const DType type = x.dtype();
    NDArray sum = Scratch(shape, IsFloating(type) ? type : DType::kInt64);
    SumInto(x, axes, sum);
    return CastScratch(sum, type);
  }

  // What is left of `a` and `b` together, in that order.
  static AxisLabels Result(const AxisLabels& a, const AxisLabels& b, const AxisLabels& needed) {
    AxisLabels result;
    for (const char label : a + b) {
      if (HasLabel(needed, label) && !HasLabel(result, label)) result.push_back(label);
    }
    return result;
  }

  // The pair whose result is smallest beside what it replaces; of equals that of the fewest products, the first.
  std::pair<size_t, size_t> NextPair() const {
    std::pair<size_t, size_t> best = {0, 1};
    std::pair<double, double> least;
    for (size_t i = 0; i < terms_.size(); ++i) {
      for (size_t j = i + 1; j < terms_.size(); ++j) {
        const AxisLabels &a = terms_[i].labels, &b = terms_[j].labels;
        const AxisLabels all = Result(a, b, a + b);
        const std::pair<double, double> cost = {
            Elements(Result(a, b, NeededBeside(i, j))) - Elements(a) - Elements(b), Elements(all)};
        if ((i == 0 && j == 1) || cost < least) best = {i, j}, least = cost;
      }
    }
    return best;
  }

  // A view with these axes; those it lacks have size 1.
  static NDArray Aligned(const Term& term, const AxisLabels& labels) {
    std::vector<int> order;
    for (const char label : labels) {
      if (HasLabel(term.labels, label)) order.push_back(static_cast<int>(term.labels.find(label)));
    }
    NDArray view = term.array.Transpose(order);
    for (size_t i = 0; i < labels.size(); ++i) {
      if (!HasLabel(term.labels, labels[i])) view = view.ExpandDims(static_cast<int>(i));
    }
    return view;
  }

  // The term as [batch, rows, columns], the first only where there are such labels: a view, or a copy.
  NDArray Matrix(const Term& term, const AxisLabels& batch, const AxisLabels& rows,
                 const AxisLabels& columns, bool* turned) const {
    NDArray view = Aligned(term, batch + rows + columns);
    const NDArray other = Aligned(term, batch + columns + rows);
    *turned = !view.is_dense() && other.is_dense();
    if (*turned) view = other;
    if (!view.is_dense()) view = view.CopyTo(Place::Scratch(view.device()));
    const int64_t m = ShapeOf(*turned ? columns : rows).NumElements(),
                  n = ShapeOf(*turned ? rows : columns).NumElements();
    if (batch.empty()) return view.Reshape({m, n});
    return view.Reshape({ShapeOf(batch).NumElements(), m, n});
  }

  // Summed over what is in both and not needed. `target`: where the last result goes if its axes come in that order.
  Term Product(const Term& a, const Term& b, const AxisLabels& needed, NDArray* target) const {
    AxisLabels batch, rows, columns, inner;
    for (const char label : a.labels)
      (!HasLabel(b.labels, label) ? rows
       : HasLabel(needed, label)  ? batch
                                  : inner)
          .push_back(label);
    for (const char label : b.labels) {
      if (!HasLabel(a.labels, label)) columns.push_back(label);
    }
    const bool is_last = target != nullptr;
    if (inner.empty()) {
      const AxisLabels labels = is_last ? output_ : batch + rows + columns;
      NDArray z = is_last ? *target : Scratch(ShapeOf(labels), a.array.dtype());
      MultiplyInto(Aligned(a, labels), Aligned(b, labels), z);
      return {z, labels};
    }
    if (rows.empty() && columns.empty() && !batch.empty()) {  // many products of one element
      NDArray products = Scratch(ShapeOf(batch + inner), a.array.dtype());
      MultiplyInto(Aligned(a, batch + inner), Aligned(b, batch + inner), products);
      std::vector<int> axes;
      for (size_t i = 0; i < inner.size(); ++i) axes.push_back(static_cast<int>(batch.size() + i));
      return {SumOf(products, axes, ShapeOf(batch)), batch};
    }
    // The one whose labels come first in the result is on the left.
    const bool swap = is_last && !columns.empty() && !rows.empty() &&
                      output_.find(columns[0]) < output_.find(rows[0]);
    const Term &left = swap ? b : a, &right = swap ? a : b;
    if (swap) std::swap(rows, columns);
    MatMulAttributes attributes;
    const NDArray x = Matrix(left, batch, rows, inner, &attributes.transpose_x);
    const NDArray y = Matrix(right, batch, inner, columns, &attributes.transpose_y);
    const AxisLabels labels = batch + rows + columns;
    NDArray z = is_last && labels == output_ ? *target : Scratch(ShapeOf(labels), a.array.dtype());
    const int64_t m = ShapeOf(rows).NumElements(), n = ShapeOf(columns).NumElements();
    NDArray matrix =
        batch.empty() ? z.Reshape({m, n}) : z.Reshape({ShapeOf(batch).NumElements(), m, n});
    MatMulInto(x, y, matrix, attributes);
    return {z, labels};
  }

  const char* const op_;
  std::vector<Term> terms_;
  const AxisLabels output_;
  DType dtype_;
  Device device_ = Host();
  int64_t sizes_[128];
};

}  // namespace

std::string NameOfLabel(char label) {
  if (label < kMaxRank) return absl::StrCat("axis ", -1 - label, " of the ellipsis");
  return absl::StrCat("label ", std::string(1, label));
}

NDArray Contract(const char* op, std::vector<Term> terms, AxisLabels output, const Place& place) {
  return Contraction(op, std::move(terms), std::move(output)).Run(place);
}

}  // namespace tidepool
