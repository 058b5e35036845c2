#ifndef HYPOT_H_
#define HYPOT_H_

#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

// An operator of one's own: sqrt(x^2 + y^2) * scale of float arrays of one shape, without overflow.
struct HypotAttributes {
  double scale = 1;
};
tidepool::OpCode HypotOp();
tidepool::NDArray Hypot(const tidepool::NDArray& x, const tidepool::NDArray& y, double scale = 1);

#endif  // HYPOT_H_
