// Sums of products of labelled arrays, for einsum.h.
#ifndef TIDEPOOL_NDARRAY_OPS_CONTRACTION_H_
#define TIDEPOOL_NDARRAY_OPS_CONTRACTION_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// A label is a letter, or for an axis of an ellipsis its place from the last, from 0.
using AxisLabels = std::string;

struct Term {
  NDArray array;
  AxisLabels labels;  // of its axes
};

inline bool HasLabel(const AxisLabels& labels, char label) {
  return labels.find(label) != AxisLabels::npos;
}
std::string NameOfLabel(char label);

// The product of the terms, at least one, summed over the labels that `output` lacks; each of its labels comes once and
// is some term's. Made in `place`. Throws kInvalidArgument naming `op`.
NDArray Contract(const char* op, std::vector<Term> terms, AxisLabels output, const Place& place);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CONTRACTION_H_
