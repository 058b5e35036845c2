// An array that a backward pass written by hand (SetGradient) reads. The tape checks only what it
// keeps itself: this one remembers the version that the array had.
#ifndef TIDEPOOL_NN_LAYERS_KEPT_FOR_GRADIENT_H_
#define TIDEPOOL_NN_LAYERS_KEPT_FOR_GRADIENT_H_

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/gradient/taped_view.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

struct KeptForGradient {
  NDArray array;
  uint32_t version = 0;

  explicit KeptForGradient(NDArray kept = NDArray())
      : array(std::move(kept)),
        version(array.buffer() ? VersionToKeep(*array.buffer().get()) : 0) {}
  uint32_t Now() const {
    return array.buffer() ? array.buffer()->version.load(std::memory_order_relaxed) : 0;
  }
  // Throws kFailedPrecondition for an array that is gone or was written to. Of an array that shares
  // its buffer with others that are written meanwhile, as parameters with running averages, nothing
  // can be said.
  void Check(absl::string_view layer, const char* what) const {
    if (!array.is_defined() || (array.IsInScope() && Now() == version)) return;
    array.CheckAlive(absl::StrCat("gradient of ", layer).c_str(), what);
    ThrowFailedPrecondition(absl::StrCat(
        "gradient tape: layer [", layer, "] kept its ", what,
        " for its gradient, and something overwrote it; expected it unchanged until Backward()"));
  }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_KEPT_FOR_GRADIENT_H_
