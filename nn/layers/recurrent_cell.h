// One step of a recurrent layer, and its gradient: what recurrent.cc drives through a sequence.
#ifndef TIDEPOOL_NN_LAYERS_RECURRENT_CELL_H_
#define TIDEPOOL_NN_LAYERS_RECURRENT_CELL_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

// What a step leaves for its gradient: arrays [batch, n * units] each, dense, of
// RecurrentCell::Kept().
using KeptOfStep = absl::Span<NDArray>;

class RecurrentCell {
 public:
  virtual ~RecurrentCell() = default;

  virtual int gates() const = 0;
  virtual int states() const = 0;  // 1: h; 2: h and c
  // Sizes of what a step keeps, in units, beside the states.
  virtual absl::Span<const int> kept() const = 0;
  virtual bool has_recurrent_bias() const { return false; }
  virtual bool reads_h() const {
    return false;
  }  // StepGrad reads the state h before the step; otherwise it is undefined there

  // `gates` [batch, gates * units], a product with the input plus the bias, may be overwritten.
  // parameters: as the layer's, but for the recurrent weight, which may be turned: [units, gates *
  // units]. Writes `next` states, and `kept` where it is not empty.
  virtual void Step(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned,
                    absl::Span<const NDArray> states, absl::Span<NDArray> next,
                    KeptOfStep kept) const = 0;

  // What Step() leaves in `kept`, of several steps at once and to the same bits: `gates`, `h` (the states before them) and `kept`, which
  // is written, are [steps, batch, ...] and dense. Of a cell that keeps something. Where there is a c the products alone, which are left
  // in `gates`: RemakeStep does the rest.
  virtual void Remake(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned,
                      const NDArray& h, KeptOfStep kept) const = 0;

  // Of one step behind Remake(), in the order they are made: `kept` and `next_c`, which are written, from `gates` and the c before it.
  virtual void RemakeStep(const NDArray& gates, const NDArray& c, NDArray& next_c,
                          KeptOfStep kept) const;

  // From the gradients of the next states those of `gates` and of what the state's product gave
  // (the same array where both are one), which are written, and those of the states by other ways
  // than that product, which replace `gradients`; undefined: none.
  virtual void StepGrad(absl::Span<const NDArray> states, absl::Span<const NDArray> next,
                        KeptOfStep kept, absl::Span<NDArray> gradients, NDArray& gate_gradient,
                        NDArray& recurrent_gradient) const = 0;
};

const RecurrentCell& LstmCellOfLayers();
const RecurrentCell& GruCellOfLayers();
const RecurrentCell& SimpleCellOfLayers(bool relu);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_RECURRENT_CELL_H_
