#include "tidepool/ndarray/kernel/operator_cost.h"

#include <algorithm>
#include <cmath>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
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

}  // namespace

OperatorCost CostOf(const KernelCall& call) {
  const OperatorInfo& info = Info(call.op);
  OperatorCost cost;
  for (const TensorRef& input : call.inputs) cost.bytes += BytesOf(input);
  for (const TensorRef& output : call.outputs) cost.bytes += BytesOf(output) * (info.updates() ? 2 : 1);
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

// Of each of the three there is a filter and the larger of two images is passed over once.
void CostOfConv2d(const KernelCall& call, OperatorCost& cost) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const TensorRef& filter = call.op == OpCode::kConv2dGradFilter ? call.outputs[0] : call.inputs[1];
  const TensorRef& output = call.op == OpCode::kConv2d           ? call.outputs[0]
                            : call.op == OpCode::kConv2dGradInput ? call.inputs[0]
                                                                  : call.inputs[1];
  const double taps = ElementsOf(filter) / std::max<double>(1, static_cast<double>(filter.dims[0]));
  cost.operations = 2 * taps * ElementsOf(output);
  if (a.accumulate) cost.bytes += BytesOf(call.outputs[0]);
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
    cost.operations += static_cast<double>(Info(chain.steps[i].op).cost.each_output) * ElementsOf(call.outputs[0]);
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
  const int axis = call.op == OpCode::kTopK ? call.attrs<AxisAttributes>().axis : call.attrs<SortAttributes>().axis;
  const double length = x.rank > 0 ? static_cast<double>(x.dims[axis]) : 1;
  cost.operations = ElementsOf(x) * std::max(1.0, std::ceil(std::log2(std::max(1.0, length))));
}

void CostOfSearch(const KernelCall& call, OperatorCost& cost) {
  const double steps = std::ceil(std::log2(ElementsOf(call.inputs[0]) + 1));
  cost.operations = ElementsOf(call.inputs[1]) * steps;
}

}  // namespace tidepool
