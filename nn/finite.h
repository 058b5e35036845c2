// Whether a network's parameters are numbers. One that has NaN or infinity among them answers NaN
// to everything: its training has diverged, or its file is not what it should be.
#ifndef TIDEPOOL_NN_FINITE_H_
#define TIDEPOOL_NN_FINITE_H_

#include <string>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// 0 where every element of x is finite, else NaN: [], of x's type, in the current place of its
// device. Nothing waits: for what a device decides by itself (Updater::ApplyNumbers).
NDArray FiniteMark(const NDArray& x);

// Whether every element of x is finite, of floating-point numbers on any device. Cost: two passes
// over x where it is, a wait for them, and memory for a few numbers.
bool AllFinite(const NDArray& x);

// The first element that is not finite, such as `parameter "2.dense.bias" holds nan at [5]`; empty:
// all are, those too that layers keep beside what is trained. Cost: that of
// AllFinite.
std::string FindNotFinite(const Network& network);
// Throws kDataLoss "<where>: parameter ..., expected finite numbers" for what FindNotFinite found.
void RequireFinite(const Network& network, const std::string& where);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_FINITE_H_
