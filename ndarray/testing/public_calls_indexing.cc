#include "tidepool/ndarray/testing/public_calls.h"

#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/sorting.h"

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
      {"gather", {{"X", m}, {"indices", m, i64}, {"Z", m}}, [](A a) { GatherInto(a[0], 0, a[1], a[2]); }},
      {"scatter",
       {{"target", m}, {"indices", m, i64}, {"updates", m}},
       [](A a) { Scatter(a[0], 0, a[1], a[2]); }},
      {"scatter",
       {{"target", m}, {"indices", m, i64}, {"updates", m}},
       [](A a) { ScatterInto(0, a[1], a[2], ScatterReduction::kMax, a[0]); }},
      {"scatter_add",
       {{"updates", m}, indices, {"Z", m}},
       [](A a) { ScatterAddInto(a[0], a[1], 0, a[2]); }},
      {"scatter_add", {{"updates", m}, indices}, [](A a) { GatherGrad(a[0], a[1], {3, 2}); }},
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
      {"pad", x, [](A a) { Pad(a[0], {1, 0}, {0, 1}); }},
      {"pad", into, [](A a) { PadInto(a[0], {0, 0}, {0, 0}, 0, a[1]); }},
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
  };
  calls->insert(calls->end(), more.begin(), more.end());
}

}  // namespace tidepool
