#include "tidepool/ndarray/ops/einsum.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/contraction.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"

namespace tidepool {
namespace {

[[noreturn]] void Refuse(const char* op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", what));
}

// One operand's labels, "..." made of as many as its other axes are.
AxisLabels LabelsOf(std::string_view text, const NDArray& operand, size_t number,
                    const std::string& whole) {
  const size_t dots = text.find("...");
  const auto named = static_cast<int>(text.size()) - (dots != std::string_view::npos ? 3 : 0);
  const int unnamed = operand.rank() - named;
  if (unnamed < 0 || (unnamed > 0 && dots == std::string_view::npos)) {
    Refuse("einsum", absl::StrCat("operand ", number, " has shape ", operand.shape().ToString(),
                                  ", its subscripts \"", std::string(text), "\" in \"", whole,
                                  "\" are of rank ", named));
  }
  if (dots == std::string_view::npos) return AxisLabels(text);
  AxisLabels labels(text.substr(0, dots));
  for (int i = unnamed - 1; i >= 0; --i) labels.push_back(static_cast<char>(i));
  return labels += text.substr(dots + 3);
}

void CheckText(std::string_view text, const std::string& whole) {
  const size_t dots = text.find("...");
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
    if (is_letter || (dots != std::string_view::npos && i >= dots && i < dots + 3)) continue;
    Refuse("einsum",
           absl::StrCat("\"", whole, "\" has \"", std::string(1, text[i]),
                        "\", expected letters, one \"...\" an operand, commas and one \"->\""));
  }
}

void CheckOperandsOf(const char* op, absl::Span<const NDArray> operands) {
  for (size_t i = 0; i < operands.size(); ++i)
    operands[i].CheckAlive(op, absl::StrCat("operand ", i).c_str());
}

void CheckPair(const char* op, const NDArray& x, const NDArray& y) {
  x.CheckAlive(op, "X");
  y.CheckAlive(op, "Y");
}

// AxisLabels of axes of one operand from `first` on.
AxisLabels Letters(int count, char first) {
  AxisLabels labels;
  for (int i = 0; i < count; ++i) labels.push_back(static_cast<char>(first + i));
  return labels;
}

NDArray SumOfPairs(const char* op, const NDArray& x, const NDArray& y, absl::Span<const int> x_axes,
                   absl::Span<const int> y_axes) {
  if (x_axes.size() != y_axes.size()) {
    Refuse(op, absl::StrCat(x_axes.size(), " axes of X and ", y_axes.size(),
                            " of Y, expected as many"));
  }
  AxisLabels of_x = Letters(x.rank(), 'a'), of_y = Letters(y.rank(), 'A');
  const AxisLabels own = of_x;
  AxisLabels output = of_x + of_y;
  for (size_t i = 0; i < x_axes.size(); ++i) {
    const int a = NormalizeAxis(op, x_axes[i], x.rank()),
              b = NormalizeAxis(op, y_axes[i], y.rank());
    if (!HasLabel(output, of_x[a]) || !HasLabel(output, of_y[b])) {
      Refuse(op, absl::StrCat("axis ", x_axes[i], " of X or ", y_axes[i], " of Y comes twice"));
    }
    if (x.dim(a) != y.dim(b)) {
      Refuse(op, absl::StrCat("axis ", a, " of X of shape ", x.shape().ToString(), " and axis ", b,
                              " of Y of shape ", y.shape().ToString(), " have sizes ", x.dim(a),
                              " and ", y.dim(b), ", expected equal ones"));
    }
    output.erase(output.find(of_y[b]), 1);
    output.erase(output.find(own[a]), 1);
    of_y[b] = own[a];
  }
  const NDArray pair[] = {x, y};
  return Contract(op, {{x, of_x}, {y, of_y}}, output,
                  ResultPlace(op, absl::Span<const NDArray>(pair)));
}

}  // namespace

NDArray Einsum(std::string_view subscripts, absl::Span<const NDArray> operands) {
  CheckOperandsOf("einsum", operands);
  const std::string whole(subscripts);
  std::string text;
  for (const char c : whole) {
    if (c != ' ') text.push_back(c);
  }
  const size_t arrow = text.find("->");
  std::string_view inputs = std::string_view(text).substr(0, arrow);
  std::vector<Term> terms;
  AxisLabels all;
  int unnamed = 0;  // the most axes of an ellipsis
  for (size_t begin = 0; begin <= inputs.size() && terms.size() <= operands.size();) {
    const size_t end = std::min(inputs.find(',', begin), inputs.size());
    const std::string_view one = inputs.substr(begin, end - begin);
    CheckText(one, whole);
    if (terms.size() < operands.size()) {
      terms.push_back(
          {operands[terms.size()], LabelsOf(one, operands[terms.size()], terms.size(), whole)});
      all += terms.back().labels;
    } else {
      terms.push_back({});
    }
    begin = end + 1;
  }
  for (const char label : all) unnamed = label < kMaxRank ? std::max(unnamed, label + 1) : unnamed;
  const auto count = static_cast<size_t>(1 + std::count(inputs.begin(), inputs.end(), ','));
  if (operands.empty() || count != operands.size()) {
    Refuse("einsum", absl::StrCat("\"", whole, "\" is of ", count, " operands, but there are ",
                                  operands.size()));
  }
  AxisLabels ellipsis, output;
  for (int i = unnamed - 1; i >= 0; --i) ellipsis.push_back(static_cast<char>(i));
  if (arrow == std::string::npos) {
    for (char label = 'A'; label <= 'z'; ++label) {
      if (std::count(all.begin(), all.end(), label) == 1) output.push_back(label);
    }
    output = ellipsis + output;
  } else {
    const std::string_view wanted = std::string_view(text).substr(arrow + 2);
    CheckText(wanted, whole);
    const size_t dots = wanted.find("...");
    output = AxisLabels(wanted.substr(0, dots));
    if (dots != std::string_view::npos) output += ellipsis + AxisLabels(wanted.substr(dots + 3));
    for (const char label : output) {
      const bool twice = std::count(output.begin(), output.end(), label) > 1;
      if (!twice && HasLabel(all, label)) continue;
      Refuse("einsum", absl::StrCat(NameOfLabel(label), " of the result in \"", whole, "\" ",
                                    twice ? "comes twice" : "is of no operand"));
    }
  }
  return Contract("einsum", std::move(terms), output, ResultPlace("einsum", operands));
}

NDArray TensorDot(const NDArray& x, const NDArray& y, absl::Span<const int> x_axes,
                  absl::Span<const int> y_axes) {
  CheckPair("tensordot", x, y);
  return SumOfPairs("tensordot", x, y, x_axes, y_axes);
}

NDArray TensorDot(const NDArray& x, const NDArray& y, int axes) {
  CheckPair("tensordot", x, y);
  if (axes < 0 || axes > x.rank() || axes > y.rank()) {
    Refuse("tensordot",
           absl::StrCat(axes, " axes of X of shape ", x.shape().ToString(), " and Y of shape ",
                        y.shape().ToString(), ", expected 0 to ", std::min(x.rank(), y.rank())));
  }
  std::vector<int> of_x, of_y;
  for (int i = 0; i < axes; ++i) of_x.push_back(x.rank() - axes + i), of_y.push_back(i);
  return SumOfPairs("tensordot", x, y, of_x, of_y);
}

NDArray Inner(const NDArray& x, const NDArray& y) {
  CheckPair("inner", x, y);
  if (x.rank() == 0 || y.rank() == 0) return SumOfPairs("inner", x, y, {}, {});
  return SumOfPairs("inner", x, y, {-1}, {-1});
}

NDArray Dot(const NDArray& x, const NDArray& y) {
  CheckPair("dot", x, y);
  if (x.rank() == 0 || y.rank() == 0) return SumOfPairs("dot", x, y, {}, {});
  return SumOfPairs("dot", x, y, {-1}, {std::max(0, y.rank() - 2)});
}

NDArray Outer(const NDArray& x, const NDArray& y) {
  CheckPair("outer", x, y);
  const auto flat = [](const NDArray& a) {
    return a.is_dense() ? a.Reshape({a.NumElements()})
                        : a.CopyTo(Place::Scratch(a.device())).Reshape({a.NumElements()});
  };
  const NDArray pair[] = {x, y};
  return Contract("outer", {{flat(x), "a"}, {flat(y), "b"}}, "ab",
                  ResultPlace("outer", absl::Span<const NDArray>(pair)));
}

NDArray Kron(const NDArray& x, const NDArray& y) {
  CheckPair("kron", x, y);
  const DType dtype = x.dtype() == y.dtype() ? x.dtype() : PromoteTypes(x.dtype(), y.dtype());
  if (dtype == DType::kBool) Refuse("kron", "operands are bool, expected numbers; Cast them");
  const int rank = std::max(x.rank(), y.rank());
  std::vector<int64_t> dims, blocks;  // of the result, and with an axis of x beside each of y
  std::vector<bool> is_of_x;          // of these; axes of 1 need no place among them
  for (int i = 0; i < rank; ++i) {
    const int64_t a = i < rank - x.rank() ? 1 : x.dim(i - rank + x.rank());
    const int64_t b = i < rank - y.rank() ? 1 : y.dim(i - rank + y.rank());
    dims.push_back(b != 0 && a > INT64_MAX / b ? INT64_MAX : a * b);  // which Shape refuses
    if (a != 1) blocks.push_back(a), is_of_x.push_back(true);
    if (b != 1) blocks.push_back(b), is_of_x.push_back(false);
  }
  if (blocks.size() > kMaxRank) {
    Refuse("kron", absl::StrCat("X has shape ", x.shape().ToString(), ", Y has shape ",
                                y.shape().ToString(), "; expected at most ", kMaxRank,
                                " axes that are not 1 together"));
  }
  NDArray of_x = CastScratch(x, dtype).Squeeze(), of_y = CastScratch(y, dtype).Squeeze();
  for (size_t i = 0; i < blocks.size(); ++i) {
    NDArray& other = is_of_x[i] ? of_y : of_x;
    other = other.ExpandDims(static_cast<int>(i));
  }
  const NDArray pair[] = {x, y};
  NDArray z(Shape(dims), dtype, ResultPlace("kron", absl::Span<const NDArray>(pair)));
  if (z.NumElements() == 0) return z;
  NDArray apart = z.Reshape(Shape(blocks));
  MultiplyInto(of_x, of_y, apart);
  return z;
}

}  // namespace tidepool
