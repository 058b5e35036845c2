// What calls of operators cost, by their rows: for programs that tell where time goes, for choosing how many threads
// to use, and for benchmarks, which divide by it.
#ifndef TIDEPOOL_NDARRAY_KERNEL_OPERATOR_COST_H_
#define TIDEPOOL_NDARRAY_KERNEL_OPERATOR_COST_H_

#include <string>

#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// Reads shapes, types and attributes, no elements. Of an operator of one's own without a cost: its bytes.
OperatorCost CostOf(const KernelCall& call);

// One line per operator: what its row says of the operators that compute its gradient, and how many operations a call
// takes.
std::string DescribeOperators();

// Columns of rows.
void CostOfProduct(const KernelCall& call, OperatorCost& cost);
void CostOfConv2d(const KernelCall& call, OperatorCost& cost);     // and its gradients
void CostOfConv3d(const KernelCall& call, OperatorCost& cost);     // likewise
void CostOfAttention(const KernelCall& call, OperatorCost& cost);  // likewise
void CostOfPool2d(const KernelCall& call, OperatorCost& cost);
void CostOfChain(const KernelCall& call, OperatorCost& cost);
void CostOfGather(const KernelCall& call, OperatorCost& cost);
void CostOfScatter(const KernelCall& call, OperatorCost& cost);
void CostOfSort(const KernelCall& call, OperatorCost& cost);
void CostOfSearch(const KernelCall& call, OperatorCost& cost);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_OPERATOR_COST_H_
