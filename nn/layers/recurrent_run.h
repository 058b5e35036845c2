// A recurrent cell over sequences, and back: see recurrent.h.
#ifndef TIDEPOOL_NN_LAYERS_RECURRENT_RUN_H_
#define TIDEPOOL_NN_LAYERS_RECURRENT_RUN_H_

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/layers/recurrent_cell.h"

namespace tidepool::nn {

// Of input [batch, length, width]: [batch, length, units], or of `last` [batch, units]. `name` is
// for errors and lives as long as the program or is copied.
NDArray RunSequence(const RecurrentCell& cell, const char* name, bool last, bool reversed,
                    LayerContext& context, const NDArray& input);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_RECURRENT_RUN_H_
