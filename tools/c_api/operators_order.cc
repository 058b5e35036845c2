// Operators that pick, place, order, search and count elements.
#include <cstdint>

#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/searching.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {
namespace {

void AddIndexing(std::vector<NamedOperator>& table) {
  table.push_back({"gather", "X,indices", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     return One(
                         [=](Inputs in) { return Gather(*in[0], *in[1], axis); },
                         [=](Inputs in, NDArray& z) { GatherInto(*in[0], *in[1], axis, z); });
                   }});
  table.push_back({"gather_elements", "X,indices", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     return One(
                         [=](Inputs in) { return Gather(*in[0], axis, *in[1]); },
                         [=](Inputs in, NDArray& z) { GatherInto(*in[0], axis, *in[1], z); });
                   }});
  table.push_back(
      {"scatter", "target,indices,updates", "Z", [](Attributes& a) {
         const int axis = a.Axis("axis", 0);
         const auto reduction = a.Choice("reduction", {"none", "add", "multiply", "min", "max"},
                                         ScatterReduction::kNone);
         return One([=](Inputs in) { return Scatter(*in[0], axis, *in[1], *in[2], reduction); });
       }});
  table.push_back({"scatter_add", "updates,indices", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     return InPlace([=](Inputs in, absl::Span<NDArray> out) {
                       ScatterAddInto(*in[0], *in[1], axis, out[0]);
                     });
                   }});
  table.push_back({"one_hot", "indices", "Z", [](Attributes& a) {
                     const int64_t depth = a.Int("depth");
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     const double on = a.Number("on", 1), off = a.Number("off", 0);
                     return One([=](Inputs in) { return OneHot(*in[0], depth, dtype, on, off); });
                   }});
  table.push_back({"flip", "X", "Z", [](Attributes& a) {
                     const Axes axes = a.Axes("axes");
                     return One([=](Inputs in) { return Flip(*in[0], axes); });
                   }});
  table.push_back({"triangle", "X", "Z", [](Attributes& a) {
                     const bool upper = a.Flag("upper", false);
                     const int64_t diagonal = a.Int("diagonal", 0);
                     return One(
                         [=](Inputs in) {
                           return upper ? UpperTriangle(*in[0], diagonal)
                                        : LowerTriangle(*in[0], diagonal);
                         },
                         [=](Inputs in, NDArray& z) {
                           return upper ? UpperTriangleInto(*in[0], diagonal, z)
                                        : LowerTriangleInto(*in[0], diagonal, z);
                         });
                   }});
}

void AddSorting(std::vector<NamedOperator>& table) {
  table.push_back({"sort", "X", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     const bool descending = a.Flag("descending", false);
                     return One(
                         [=](Inputs in) { return Sort(*in[0], axis, descending); },
                         [=](Inputs in, NDArray& z) { SortInto(*in[0], axis, descending, z); });
                   }});
  table.push_back({"argsort", "X", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     const bool descending = a.Flag("descending", false);
                     return One([=](Inputs in) { return ArgSort(*in[0], axis, descending); });
                   }});
  table.push_back({"top_k", "X", "values,places", [](Attributes& a) {
                     const int64_t k = a.Int("k");
                     const int axis = a.Axis("axis", -1);
                     return Many([=](Inputs in) {
                       TopKResult top = TopK(*in[0], k, axis);
                       return Results{std::move(top.values), std::move(top.places)};
                     });
                   }});
  table.push_back({"cumsum", "X", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     const bool reverse = a.Flag("reverse", false),
                                exclusive = a.Flag("exclusive", false);
                     return One([=](Inputs in) { return CumSum(*in[0], axis, reverse, exclusive); },
                                [=](Inputs in, NDArray& z) {
                                  CumSumInto(*in[0], axis, reverse, exclusive, z);
                                });
                   }});
  table.push_back(
      {"cumprod", "X", "Z", [](Attributes& a) {
         const int axis = a.Axis("axis", -1);
         const bool reverse = a.Flag("reverse", false), exclusive = a.Flag("exclusive", false);
         return One(
             [=](Inputs in) { return CumProd(*in[0], axis, reverse, exclusive); },
             [=](Inputs in, NDArray& z) { CumProdInto(*in[0], axis, reverse, exclusive, z); });
       }});
}

void AddSearching(std::vector<NamedOperator>& table) {
  table.push_back({"search_sorted", "sorted,values", "Z", [](Attributes& a) {
                     const bool right = a.Flag("right", false);
                     return One([=](Inputs in) { return SearchSorted(*in[0], *in[1], right); });
                   }});
  table.push_back({"argwhere", "X", "places",
                   [](Attributes&) { return One([](Inputs in) { return ArgWhere(*in[0]); }); }});
  table.push_back({"unique", "X", "values,first,inverse,counts", [](Attributes&) {
                     return Many([](Inputs in) {
                       UniqueResult all = UniqueAll(*in[0]);
                       return Results{std::move(all.values), std::move(all.first),
                                      std::move(all.inverse), std::move(all.counts)};
                     });
                   }});
  table.push_back({"bincount", "X,weights?", "counts", [](Attributes& a) {
                     const int64_t min_length = a.Int("min_length", 0);
                     return One([=](Inputs in) {
                       return in[1] != nullptr ? BinCount(*in[0], *in[1], min_length)
                                               : BinCount(*in[0], min_length);
                     });
                   }});
  table.push_back({"histogram", "X,edges?", "counts,edges", [](Attributes& a) {
                     const int64_t bins = a.Int("bins", 10);
                     return Many([=](Inputs in) {
                       HistogramResult result =
                           in[1] != nullptr ? Histogram(*in[0], *in[1]) : Histogram(*in[0], bins);
                       return Results{std::move(result.counts), std::move(result.edges)};
                     });
                   }});
}

}  // namespace

void AddOrderOperators(std::vector<NamedOperator>& table) {
  AddIndexing(table);
  AddSorting(table);
  AddSearching(table);
}

}  // namespace tidepool::c_api
