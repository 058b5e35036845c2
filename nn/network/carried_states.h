// States of sequences that come in parts, on their way from a step to its caller.
#ifndef TIDEPOOL_NN_NETWORK_CARRIED_STATES_H_
#define TIDEPOOL_NN_NETWORK_CARRIED_STATES_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/network/restore_quietly.h"

namespace tidepool::nn {

// Of one step, on its thread: Write() and then Hand(). Of a step that fails before that the caller's states are what they were.
class CarriedStates {
 public:
  // `carried`: behind the step; `states`: the caller's, as many. What takes memory of the heap is done here, arrays for the states that
  // the caller has none for: OutOfMemoryError.
  CarriedStates(absl::Span<const NDArray> carried, std::vector<NDArray>* states) {
    const NoGradientScope constants;
    for (size_t i = 0; i < carried.size(); ++i) {
      NDArray& state = (*states)[i];
      const NDArray& now = carried[i];
      if (!now.is_defined() || (state.is_defined() && state.buffer().get() == now.buffer().get()))
        continue;
      // Into the caller's array where there is one: a step takes no memory for it.
      const bool fits = state.is_defined() && !state.IsAttached() &&
                        state.device() == now.device() && state.dtype() == now.dtype();
      if (fits) {
        // A device may refuse a copy when others are done.
        copies_.push_back({&state, now, state.device() == Host() ? NDArray() : state.Dup()});
      } else {
        handed_.push_back({&state, now.Detach()});
      }
    }
  }
  // Into the caller's arrays. Throws what a device throws.
  void Write() {
    const NoGradientScope constants;
    size_t done = 0;
    absl::Cleanup undo = [&] {
      while (done-- > 0) {
        if (copies_[done].before.is_defined())
          RestoreQuietly(copies_[done].before, *copies_[done].state);
      }
    };
    for (; done < copies_.size(); ++done) CopyInto(copies_[done].now, *copies_[done].state);
    std::move(undo).Cancel();
  }
  // The caller's from here on: those that it had none for.
  void Hand() noexcept {
    for (auto& [state, made] : handed_) *state = std::move(made);
  }

 private:
  struct Copy {
    NDArray* state;
    NDArray now, before;
  };
  absl::InlinedVector<Copy, 4> copies_;
  absl::InlinedVector<std::pair<NDArray*, NDArray>, 4> handed_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_CARRIED_STATES_H_
