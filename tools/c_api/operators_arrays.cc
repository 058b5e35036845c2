// Operators that make arrays, look at them in other ways, join and rearrange them.
#include <cstdint>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/rearranging.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {
namespace {

constexpr auto kIsError = Attributes::Absent::kIsError;

std::vector<NDArray> Listed(Inputs in) {
  std::vector<NDArray> arrays;
  for (const NDArray* array : in) arrays.push_back(*array);
  return arrays;
}

void AddCreation(std::vector<NamedOperator>& table) {
  table.push_back({"fill", "", "Z", [](Attributes& a) {
                     const Shape shape = a.Shape("shape");
                     const double value = a.Number("value", 0);
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     return One([=](Inputs) { return Full(shape, value, dtype); },
                                [=](Inputs, NDArray& z) { FillInto(value, z); });
                   }});
  table.push_back({"arange", "", "Z", [](Attributes& a) {
                     const double begin = a.Number("begin", 0), end = a.Number("end"),
                                  step = a.Number("step", 1);
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     return One([=](Inputs) { return Arange(begin, end, step, dtype); });
                   }});
  table.push_back({"linspace", "", "Z", [](Attributes& a) {
                     const double begin = a.Number("begin"), end = a.Number("end");
                     const int64_t count = a.Int("count");
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     return One([=](Inputs) { return Linspace(begin, end, count, dtype); });
                   }});
  table.push_back({"eye", "", "Z", [](Attributes& a) {
                     const int64_t rows = a.Int("rows"), columns = a.Int("columns"),
                                   diagonal = a.Int("diagonal", 0);
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     return One([=](Inputs) { return Eye(rows, columns, diagonal, dtype); });
                   }});
  table.push_back(
      {"random_uniform", "", "Z", [](Attributes& a) {
         const Shape shape = a.Shape("shape");
         const double low = a.Number("low", 0), high = a.Number("high", 1);
         const DType dtype = a.Type("dtype", DType::kFloat32);
         const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
         return One([=](Inputs) { return RandomUniform(shape, low, high, dtype, seed, stream); });
       }});
  table.push_back({"random_normal", "", "Z", [](Attributes& a) {
                     const Shape shape = a.Shape("shape");
                     const double mean = a.Number("mean", 0), deviation = a.Number("deviation", 1);
                     const DType dtype = a.Type("dtype", DType::kFloat32);
                     const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
                     return One([=](Inputs) {
                       return RandomNormal(shape, mean, deviation, dtype, seed, stream);
                     });
                   }});
  table.push_back({"random_bernoulli", "", "Z", [](Attributes& a) {
                     const Shape shape = a.Shape("shape");
                     const double probability = a.Number("probability", 0.5);
                     const DType dtype = a.Type("dtype", DType::kBool);
                     const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
                     return One([=](Inputs) {
                       return RandomBernoulli(shape, probability, seed, stream, dtype);
                     });
                   }});
  table.push_back(
      {"random_integers", "", "Z", [](Attributes& a) {
         const Shape shape = a.Shape("shape");
         const int64_t low = a.Int("low", 0), high = a.Int("high");
         const DType dtype = a.Type("dtype", DType::kInt64);
         const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
         return One([=](Inputs) { return RandomIntegers(shape, low, high, seed, stream, dtype); });
       }});
  table.push_back({"random_permutation", "", "Z", [](Attributes& a) {
                     const int64_t count = a.Int("count");
                     const DType dtype = a.Type("dtype", DType::kInt64);
                     const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
                     return One(
                         [=](Inputs) { return RandomPermutation(count, seed, stream, dtype); });
                   }});
  table.push_back({"shuffle", "X", "Z", [](Attributes& a) {
                     const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
                     const int axis = a.Axis("axis", 0);
                     return One([=](Inputs in) { return Shuffle(*in[0], seed, stream, axis); });
                   }});
}

void AddViews(std::vector<NamedOperator>& table) {
  table.push_back({"reshape", "X", "view", [](Attributes& a) {
                     const Shape shape = a.Shape("shape");
                     return One([=](Inputs in) { return in[0]->Reshape(shape); });
                   }});
  table.push_back({"transpose", "X", "view", [](Attributes& a) {
                     const std::vector<int> axes = a.Axes("axes");
                     return One([=](Inputs in) {
                       return axes.empty() ? in[0]->Transpose() : in[0]->Transpose(axes);
                     });
                   }});
  table.push_back({"slice", "X", "view", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     const int64_t begin = a.Int("begin"), end = a.Int("end"),
                                   step = a.Int("step", 1);
                     return One([=](Inputs in) { return in[0]->Slice(axis, begin, end, step); });
                   }});
  table.push_back({"index", "X", "view", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     const int64_t index = a.Int("index");
                     return One([=](Inputs in) { return in[0]->Index(axis, index); });
                   }});
  table.push_back({"broadcast_to", "X", "view", [](Attributes& a) {
                     const Shape shape = a.Shape("shape");
                     return One([=](Inputs in) { return in[0]->BroadcastTo(shape); });
                   }});
  table.push_back(
      {"squeeze", "X", "view", [](Attributes& a) {
         const std::vector<int> axes = a.Axes("axis");
         if (axes.size() > 1)
           ThrowInvalidArgument(
               "operator [squeeze]: attribute [axis] has several, expected one or none");
         return One(
             [=](Inputs in) { return axes.empty() ? in[0]->Squeeze() : in[0]->Squeeze(axes[0]); });
       }});
  table.push_back({"expand_dims", "X", "view", [](Attributes& a) {
                     const int axis = a.Axis("axis");
                     return One([=](Inputs in) { return in[0]->ExpandDims(axis); });
                   }});
  table.push_back({"diagonal", "X", "view", [](Attributes& a) {
                     const int64_t offset = a.Int("offset", 0);
                     const int axis1 = a.Axis("axis1", 0), axis2 = a.Axis("axis2", 1);
                     return One([=](Inputs in) { return in[0]->Diagonal(offset, axis1, axis2); });
                   }});
}

void AddJoining(std::vector<NamedOperator>& table) {
  table.push_back({"concat", "parts...", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     return One([=](Inputs in) { return Concat(Listed(in), axis); },
                                [=](Inputs in, NDArray& z) { ConcatInto(Listed(in), axis, z); });
                   }});
  table.push_back({"stack", "parts...", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", 0);
                     return One([=](Inputs in) { return Stack(Listed(in), axis); });
                   }});
  table.push_back({"split", "X", "parts...", [](Attributes& a) {
                     const std::vector<int64_t> sizes = a.Ints("sizes", kIsError);
                     const int axis = a.Axis("axis", 0);
                     return Many([=](Inputs in) { return ResultsOf(Split(*in[0], sizes, axis)); });
                   }});
  table.push_back({"pad", "X", "Z", [](Attributes& a) {
                     const std::vector<int64_t> before = a.Ints("before", kIsError),
                                                after = a.Ints("after", kIsError);
                     const double value = a.Number("value", 0);
                     return One(
                         [=](Inputs in) { return Pad(*in[0], before, after, value); },
                         [=](Inputs in, NDArray& z) { PadInto(*in[0], before, after, value, z); });
                   }});
  table.push_back({"tile", "X", "Z", [](Attributes& a) {
                     const std::vector<int64_t> repeats = a.Ints("repeats", kIsError);
                     return One([=](Inputs in) { return Tile(*in[0], repeats); });
                   }});
  table.push_back({"repeat", "X", "Z", [](Attributes& a) {
                     const int64_t count = a.Int("count");
                     const int axis = a.Axis("axis", 0);
                     return One([=](Inputs in) { return Repeat(*in[0], count, axis); });
                   }});
}

void AddRearranging(std::vector<NamedOperator>& table) {
  table.push_back({"roll", "X", "Z", [](Attributes& a) {
                     const std::vector<int64_t> shifts = a.Ints("shift", kIsError);
                     const std::vector<int> axes = a.Axes("axes");
                     return One([=](Inputs in) {
                       return axes.empty() && shifts.size() == 1 ? Roll(*in[0], shifts[0])
                                                                 : Roll(*in[0], shifts, axes);
                     });
                   }});
  table.push_back({"diff", "X", "Z", [](Attributes& a) {
                     const int64_t times = a.Int("times", 1);
                     const int axis = a.Axis("axis", -1);
                     return One([=](Inputs in) { return Diff(*in[0], times, axis); });
                   }});
  table.push_back({"trace", "X", "Z", [](Attributes& a) {
                     const int64_t offset = a.Int("offset", 0);
                     const int axis1 = a.Axis("axis1", 0), axis2 = a.Axis("axis2", 1);
                     return One([=](Inputs in) { return Trace(*in[0], offset, axis1, axis2); });
                   }});
  table.push_back({"diagonal_matrix", "X", "Z", [](Attributes& a) {
                     const int64_t offset = a.Int("offset", 0);
                     return One([=](Inputs in) { return DiagonalMatrix(*in[0], offset); });
                   }});
  table.push_back({"repeat_each", "X", "Z", [](Attributes& a) {
                     const std::vector<int64_t> counts = a.Ints("counts", kIsError);
                     const int axis = a.Axis("axis", 0);
                     return One([=](Inputs in) { return RepeatEach(*in[0], counts, axis); });
                   }});
  table.push_back({"meshgrid", "coordinates...", "grids...", [](Attributes& a) {
                     const auto order = a.Choice("order", {"columns", "rows"}, GridOrder::kColumns);
                     return Many([=](Inputs in) { return ResultsOf(Meshgrid(Listed(in), order)); });
                   }});
  table.push_back({"einsum", "operands...", "Z", [](Attributes& a) {
                     const std::string subscripts = a.Text("subscripts");
                     return One([=](Inputs in) { return Einsum(subscripts, Listed(in)); });
                   }});
  table.push_back({"tensordot", "X,Y", "Z", [](Attributes& a) {
                     const int axes = a.Axis("axes", 2);
                     return One([=](Inputs in) { return TensorDot(*in[0], *in[1], axes); });
                   }});
  using OfTwo = NDArray (*)(const NDArray&, const NDArray&);
  for (const auto& [name, run] : {std::pair<const char*, OfTwo>{"outer", &Outer},
                                  {"inner", &Inner},
                                  {"dot", &Dot},
                                  {"kron", &Kron}}) {
    table.push_back({name, "X,Y", "Z", [run = run](Attributes&) {
                       return One([run](Inputs in) { return run(*in[0], *in[1]); });
                     }});
  }
}

}  // namespace

void AddArrayOperators(std::vector<NamedOperator>& table) {
  AddCreation(table);
  AddViews(table);
  AddJoining(table);
  AddRearranging(table);
}

}  // namespace tidepool::c_api
