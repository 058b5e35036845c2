// What the sources of ParallelWrapper share.
#ifndef TIDEPOOL_NN_PARALLEL_PARALLEL_WORKER_H_
#define TIDEPOOL_NN_PARALLEL_PARALLEL_WORKER_H_

#include <optional>
#include <utility>

#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

inline constexpr char kParallelWrapper[] = "parallel wrapper";  // in messages

// Arrays that are there are written: nobody's manager and no tape has a part in it.
struct InPlace {
  const HandlesOwnScope handles;
  const NoGradientScope constants;
};

struct ParallelWrapper::Worker {
  explicit Worker(Network its_network) : network(std::move(its_network)) {}
  Network network;
  std::optional<Trainer> trainer;  // kParameterAveraging
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_PARALLEL_WORKER_H_
