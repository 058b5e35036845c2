// Arrays put back where a step fails.
#ifndef TIDEPOOL_NN_NETWORK_RESTORE_QUIETLY_H_
#define TIDEPOOL_NN_NETWORK_RESTORE_QUIETLY_H_

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

// In an error's way; `before` undefined: nothing.
inline void RestoreQuietly(const NDArray& before, NDArray array) {
  if (!before.is_defined()) return;
  const NoGradientScope constants;
  try {
    CopyInto(before, array);
  } catch (const Error&) {
    // The device failed as well: the step's own error is on its way.
  }
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_RESTORE_QUIETLY_H_
