#include "tidepool/ndarray/kernel/operator_cost.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"

namespace tidepool {
namespace {

double ElementsOf(const TensorRef& ref) {
  return ref.present ? static_cast<double>(ref.NumElements()) : 0;
}
// What is repeated by a stride of 0 lies in memory once.
double BytesOf(const TensorRef& ref) {
  if (!ref.present) return 0;
  double bytes = static_cast<double>(DTypeBytes(ref.dtype));
  for (int i = 0; i < ref.rank; ++i) {
    if (ref.strides[i] != 0 || ref.dims[i] == 0) bytes *= static_cast<double>(ref.dims[i]);
  }
  return bytes;
}

// "2 an output, 3 an input".
std::string Describe(const CostRule& cost) {
  if (cost.adjust != nullptr) return "by shapes and attributes";
  std::string text;
  if (cost.each_output != 0 || cost.each_input == 0)
    absl::StrAppend(&text, cost.each_output, " an output");
  if (cost.each_input != 0)
    absl::StrAppend(&text, text.empty() ? "" : ", ", cost.each_input, " an input");
  return text;
}

}  // namespace

std::string DescribeOperators() {
  std::string out;
  const auto add = [&](const char* name, const std::string& operations,
                       const std::string& gradient) {
    AppendFormat(&out, "%-28s %-24s %s\n", name, operations.c_str(), gradient.c_str());
  };
  add("operator", "operations an element", "gradient by");
  for (int op = 0; op < OperatorCount(); ++op) {
    const OperatorInfo& info = Info(static_cast<OpCode>(op));
    const bool composed = info.gradient == std::string_view(operator_list::kComposed);
    add(info.name, Describe(info.cost),
        info.has_gradient_operators() ? absl::StrReplaceAll(info.gradient, {{",", ", "}})
        : composed                    ? "other operators"
                                      : absl::StrCat("- (", info.gradient, ")"));
  }
  return out;
}

OperatorCost CostOf(const KernelCall& call) {
  const OperatorInfo& info = Info(call.op);
  OperatorCost cost;
  for (const TensorRef& input : call.inputs) cost.bytes += BytesOf(input);
  for (const TensorRef& output : call.outputs)
    cost.bytes += BytesOf(output) * (info.updates() ? 2 : 1);
  cost.operations = static_cast<double>(info.cost.each_output) * ElementsOf(call.outputs[0]);
  if (info.cost.each_input != 0) {
    cost.operations += static_cast<double>(info.cost.each_input) * ElementsOf(call.inputs[0]);
  }
  if (info.cost.adjust != nullptr) info.cost.adjust(call, cost);
  return cost;
}

void CostOfProduct(const KernelCall& call, OperatorCost& cost) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& x = call.inputs[0];
  const int64_t inner = x.dims[x.rank - (a.transpose_x ? 2 : 1)];
  cost.operations = 2 * static_cast<double>(inner) * ElementsOf(call.outputs[0]);
  if (a.accumulate) cost.bytes += BytesOf(call.outputs[0]);
}

namespace {

// Of each of the three there is a filter and the larger of two images is passed over once.
void CostOfConvolution(const KernelCall& call, OpCode forward, OpCode grad_input, bool accumulates,
                       OperatorCost& cost) {
  const bool of_filter = call.op != forward && call.op != grad_input;
  const TensorRef& filter = of_filter ? call.outputs[0] : call.inputs[1];
  const TensorRef& output = call.op == forward      ? call.outputs[0]
                            : call.op == grad_input ? call.inputs[0]
                                                    : call.inputs[1];
  const double taps = ElementsOf(filter) / std::max<double>(1, static_cast<double>(filter.dims[0]));
  cost.operations = 2 * taps * ElementsOf(output);
  if (accumulates) cost.bytes += BytesOf(call.outputs[0]);
}

}  // namespace

void CostOfConv2d(const KernelCall& call, OperatorCost& cost) {
  CostOfConvolution(call, OpCode::kConv2d, OpCode::kConv2dGradInput,
                    call.attrs<Conv2dAttributes>().accumulate, cost);
}

void CostOfConv3d(const KernelCall& call, OperatorCost& cost) {
  CostOfConvolution(call, OpCode::kConv3d, OpCode::kConv3dGradInput,
                    call.attrs<Conv3dAttributes>().accumulate, cost);
}

// Two products for each query and key forwards, five backwards, where scores are computed once more; what a causal mask
// hides is not computed.
void CostOfAttention(const KernelCall& call, OperatorCost& cost) {
  const TensorRef &query = call.inputs[0], &key = call.inputs[1], &value = call.inputs[2];
  const int64_t queries = query.dims[2], keys = key.dims[2];
  const auto& a = call.attrs<AttentionAttributes>();
  double seen = static_cast<double>(queries) * static_cast<double>(keys);
  if (a.causal) {
    seen = 0;
    for (int64_t i = 0; i < queries; ++i) seen += static_cast<double>(a.Visible(i, keys));
  }
  const double pairs = static_cast<double>(query.dims[0] * query.dims[1]) * seen;
  const double of_keys = static_cast<double>(query.dims[3]),
               of_values = static_cast<double>(value.dims[3]);
  cost.operations = call.op == OpCode::kAttention ? pairs * (2 * of_keys + 2 * of_values + 10)
                                                  : pairs * (6 * of_keys + 4 * of_values + 16);
}

void CostOfPool2d(const KernelCall& call, OperatorCost& cost) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& pooled = call.op == OpCode::kMaxPool2d || call.op == OpCode::kAveragePool2d
                                ? call.outputs[0]
                                : call.inputs[call.inputs.size() - 1];
  cost.operations = static_cast<double>(a.kernel_height * a.kernel_width) * ElementsOf(pooled);
}

void CostOfChain(const KernelCall& call, OperatorCost& cost) {
  const auto& chain = call.attrs<ElementwiseChainAttributes>();
  for (int i = 0; i < chain.count; ++i) {
    cost.operations +=
        static_cast<double>(Info(chain.steps[i].op).cost.each_output) * ElementsOf(call.outputs[0]);
  }
}

// Reads what it picks.
void CostOfGather(const KernelCall& call, OperatorCost& cost) {
  cost.bytes = BytesOf(call.inputs[1]) + 2 * BytesOf(call.outputs[0]);
}

// Reads and writes the elements it reaches, of which there are at most as many as there are updates.
void CostOfScatter(const KernelCall& call, OperatorCost& cost) {
  const double reached = std::min(BytesOf(call.inputs[0]), BytesOf(call.outputs[0]));
  cost.operations = ElementsOf(call.inputs[0]);
  cost.bytes = BytesOf(call.inputs[0]) + BytesOf(call.inputs[1]) + 2 * reached;
}

void CostOfSort(const KernelCall& call, OperatorCost& cost) {
  const TensorRef& x = call.inputs[0];
  const int axis = call.op == OpCode::kTopK ? call.attrs<AxisAttributes>().axis
                                            : call.attrs<SortAttributes>().axis;
  const double length = x.rank > 0 ? static_cast<double>(x.dims[axis]) : 1;
  cost.operations = ElementsOf(x) * std::max(1.0, std::ceil(std::log2(std::max(1.0, length))));
}

void CostOfSearch(const KernelCall& call, OperatorCost& cost) {
  const double steps = std::ceil(std::log2(ElementsOf(call.inputs[0]) + 1));
  cost.operations = ElementsOf(call.inputs[1]) * steps;
}

}  // namespace tidepool
