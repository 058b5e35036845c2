// The network that reads names, and its batches.
#ifndef TIDEPOOL_EXAMPLES_NAMES_NAMES_NETWORK_H_
#define TIDEPOOL_EXAMPLES_NAMES_NAMES_NETWORK_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::examples {

// Letters as `width` numbers each, read from both sides by `units` LSTM cells.
inline nn::NetworkConfig NamesNetwork(int64_t width, int64_t units) {
  // The index 0 is no step: what follows knows how long each name is.
  return nn::NetworkConfig::Sequential(
      nn::InputConfig{"letters", {kLength}, DType::kInt64},
      {nn::Embedding(kLetters, width, {.mask_index = 0}), nn::Bidirectional(nn::Lstm(units)),
       nn::DropoutLayer(0.3),
       nn::Bidirectional(nn::Lstm(units, {.output = nn::RecurrentOutput::kLast})),
       nn::DropoutLayer(0.3), nn::Dense(2)});
}

// Those names in this order, in the current place.
inline nn::Batch BatchOf(const Names& names, absl::Span<const int64_t> order) {
  const auto count = static_cast<int64_t>(order.size());
  nn::Batch batch(Empty({count, kLength}, DType::kInt64), Empty({count}, DType::kInt64));
  int64_t *letters = batch.features.mutable_data<int64_t>(),
          *labels = batch.labels.mutable_data<int64_t>();
  for (size_t i = 0; i < order.size(); ++i) {
    letters = std::copy_n(names.letters.data() + order[i] * kLength, kLength, letters);
    labels[i] = names.labels[static_cast<size_t>(order[i])];
  }
  return batch;
}

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_NAMES_NAMES_NETWORK_H_
