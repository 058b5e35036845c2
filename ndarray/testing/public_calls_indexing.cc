#include "tidepool/ndarray/testing/public_calls.h"

#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/rearranging.h"
#include "tidepool/ndarray/ops/searching.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/statistics.h"

namespace tidepool {

void AppendIndexingCalls(std::vector<PublicCall>* calls) {
  using A = std::vector<NDArray>&;
  const Shape m{2, 2};
  const DType i64 = DType::kInt64;
  const Operand indices{"indices", {2}, i64};
  const std::vector<Operand> x = {{"X", m}}, into = {{"X", m}, {"Z", m}};
  const std::vector<PublicCall> more = {
      {"gather", {{"X", m}, indices}, [](A a) { Gather(a[0], a[1]); }},
      {"gather", {{"X", m}, indices, {"Z", m}}, [](A a) { GatherInto(a[0], a[1], 0, a[2]); }},
      {"gather", {{"X", m}, {"indices", m, i64}}, [](A a) { Gather(a[0], 0, a[1]); }},
      {"gather",
       {{"X", m}, {"indices", m, i64}, {"Z", m}},
       [](A a) { GatherInto(a[0], 0, a[1], a[2]); }},
      {"scatter",
       {{"target", m}, {"indices", m, i64}, {"updates", m}},
       [](A a) { Scatter(a[0], 0, a[1], a[2]); }},
      {"scatter",
       {{"target", m}, {"indices", m, i64}, {"updates", m}},
       [](A a) { ScatterInto(0, a[1], a[2], ScatterReduction::kMax, a[0]); }},
      {"scatter_add",
       {{"updates", m}, indices, {"Z", m}},
       [](A a) { ScatterAddInto(a[0], a[1], 0, a[2]); }},
      {"scatter_add",
       {{"updates", m}, indices},
       [](A a) {
         GatherGrad(a[0], a[1], {3, 2});
       }},
      {"one_hot", {indices}, [](A a) { OneHot(a[0], 3); }},
      {"flip", x, [](A a) { Flip(a[0]); }},
      {"triangle", x, [](A a) { UpperTriangle(a[0]); }},
      {"triangle", into, [](A a) { LowerTriangleInto(a[0], 0, a[1]); }},
      {"concat", {{"part 0", m}, {"part 1", m}}, [](A a) { Concat(a); }},
      {"concat",
       {{"part 0", m}, {"Z", m}},
       [](A a) { ConcatInto(absl::MakeConstSpan(a).subspan(0, 1), 0, a[1]); }},
      {"stack", {{"part 0", m}, {"part 1", m}}, [](A a) { Stack(a); }},
      {"split", x, [](A a) { Split(a[0], 2); }},
      {"pad", x,
       [](A a) {
         Pad(a[0], {1, 0}, {0, 1});
       }},
      {"pad", into,
       [](A a) {
         PadInto(a[0], {0, 0}, {0, 0}, 0, a[1]);
       }},
      {"tile", x, [](A a) { Tile(a[0], {2}); }},
      {"repeat", x, [](A a) { Repeat(a[0], 2); }},
      {"sort", x, [](A a) { Sort(a[0]); }},
      {"sort", into, [](A a) { SortInto(a[0], 0, false, a[1]); }},
      {"argsort", x, [](A a) { ArgSort(a[0]); }},
      {"top_k", x, [](A a) { TopK(a[0], 1); }},
      {"top_k",
       {{"X", m}, {"values", m}, {"places", m, i64}},
       [](A a) { TopKInto(a[0], 0, a[1], a[2]); }},
      {"cumsum", x, [](A a) { CumSum(a[0]); }},
      {"cumsum", into, [](A a) { CumSumInto(a[0], 0, false, false, a[1]); }},
      {"cumprod", x, [](A a) { CumProd(a[0]); }},
      {"cumprod", into, [](A a) { CumProdInto(a[0], 0, false, false, a[1]); }},
      {"search_sorted", {{"sorted", {3}}, {"values", m}}, [](A a) { SearchSorted(a[0], a[1]); }},
      {"nonzero", x, [](A a) { NonZero(a[0]); }},
      {"argwhere", x, [](A a) { ArgWhere(a[0]); }},
      {"unique", x, [](A a) { Unique(a[0]); }},
      {"unique_all", x, [](A a) { UniqueAll(a[0]); }},
      {"bincount", {{"X", {3}, i64}, {"weights", {3}}}, [](A a) { BinCount(a[0], a[1]); }},
      {"bincount", {{"X", {3}, i64}}, [](A a) { BinCount(a[0]); }},
      {"histogram", x, [](A a) { Histogram(a[0]); }},
      {"histogram", {{"X", m}, {"edges", {3}}}, [](A a) { Histogram(a[0], a[1]); }},
      {"roll", x, [](A a) { Roll(a[0], 1, 0); }},
      {"diff", x, [](A a) { Diff(a[0]); }},
      {"trace", x, [](A a) { Trace(a[0]); }},
      {"diagonal_matrix", {{"v", {3}}}, [](A a) { DiagonalMatrix(a[0]); }},
      {"repeat", x,
       [](A a) {
         RepeatEach(a[0], {1, 2});
       }},
      {"meshgrid", {{"coordinates 0", {2}}, {"coordinates 1", {3}}}, [](A a) { Meshgrid(a); }},
      {"std", x, [](A a) { Std(a[0]); }},
      {"quantile", x, [](A a) { Quantile(a[0], 0.3); }},
      {"median", x, [](A a) { Median(a[0]); }},
      {"nan_sum", x, [](A a) { NanSum(a[0]); }},
      {"nan_mean", x, [](A a) { NanMean(a[0]); }},
      {"nan_max", x, [](A a) { NanMax(a[0]); }},
      {"nan_min", x, [](A a) { NanMin(a[0]); }},
      {"einsum", {{"operand 0", m}, {"operand 1", m}}, [](A a) { Einsum("ij,jk", a); }},
      {"tensordot", {{"X", m}, {"Y", m}}, [](A a) { TensorDot(a[0], a[1], 1); }},
      {"outer", {{"X", m}, {"Y", m}}, [](A a) { Outer(a[0], a[1]); }},
      {"inner", {{"X", m}, {"Y", m}}, [](A a) { Inner(a[0], a[1]); }},
      {"dot", {{"X", m}, {"Y", m}}, [](A a) { Dot(a[0], a[1]); }},
      {"kron", {{"X", m}, {"Y", m}}, [](A a) { Kron(a[0], a[1]); }},
  };
  calls->insert(calls->end(), more.begin(), more.end());
}

}  // namespace tidepool
