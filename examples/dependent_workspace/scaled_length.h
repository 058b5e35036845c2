#ifndef SCALED_LENGTH_H_
#define SCALED_LENGTH_H_

#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

// An operator of one's own: sqrt(x^2 + y^2) * scale of float arrays of one shape, without overflow.
struct ScaledLengthAttributes {
  double scale = 1;
};
tidepool::OpCode ScaledLengthOp();
tidepool::NDArray ScaledLength(const tidepool::NDArray& x, const tidepool::NDArray& y,
                               double scale = 1);

#endif  // SCALED_LENGTH_H_
