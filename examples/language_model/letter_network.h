// The network that spells names letter by letter, its batches and its loss.
#ifndef TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_LETTER_NETWORK_H_
#define TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_LETTER_NETWORK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::examples {

inline constexpr int64_t kPlaces = kLength + 1;  // the letters and the end
inline constexpr int64_t kEnd = 0;               // also what stands before the first letter
inline constexpr int64_t kNothing = -1;          // label of places behind the end

inline int64_t LengthOf(const Names& names, int64_t i) {
  const int64_t* const letters = names.letters.data() + i * kLength;
  return std::find(letters, letters + kLength, kEnd) - letters;
}

// Features: the letter before each place. Labels: the one at it.
inline nn::Batch LettersOf(const Names& names, absl::Span<const int64_t> which) {
  const Shape shape = {static_cast<int64_t>(which.size()), kPlaces};
  nn::Batch batch(Zeros(shape, DType::kInt64), Full(shape, kNothing, DType::kInt64));
  int64_t *before = batch.features.mutable_data<int64_t>(),
          *at = batch.labels.mutable_data<int64_t>();
  for (const int64_t i : which) {
    const int64_t length = LengthOf(names, i);
    std::copy_n(names.letters.data() + i * kLength, length, before + 1);
    std::copy_n(names.letters.data() + i * kLength, length, at);
    at[length] = kEnd;
    before += kPlaces;
    at += kPlaces;
  }
  return batch;
}

// -log of the probability of each letter and end, in nats, 0 behind the end: [batch, kPlaces].
inline NDArray Losses(const NDArray& logits, const NDArray& labels) {
  const int64_t rows = labels.NumElements();
  const NDArray is_there = labels != kNothing;
  const NDArray known = Where(is_there, labels, kEnd).Reshape({rows});
  const CrossEntropy result =
      SoftmaxCrossEntropy(logits.Reshape({rows, kLetters}), known, Labels::kChecked);
  return result.loss.Reshape(labels.shape()) * Cast(is_there, logits.dtype());
}

// Each name is a sequence of kPlaces letters; what stands behind its end is seen by nobody, as
// attention is causal.
inline nn::NetworkConfig LetterNetwork(int64_t width, double dropout) {
  constexpr int64_t kHeads = 4;
  nn::NetworkConfig config;
  std::string x = config.AddInput("letters", {kPlaces}, DType::kInt64);
  x = config.Add(nn::Embedding(kLetters, width,
                               {.initializer = nn::Initializer::Normal(1 / std::sqrt(width))}),
                 {x}, "letter");
  x = config.Add(nn::PositionEmbedding(), {x}, "place");
  x = config.Add(nn::DropoutLayer(dropout), {x}, "dropout");
  for (const char* block : {"first", "second"}) {
    x = config.Add(nn::TransformerBlock(kHeads, 0, {.causal = true, .dropout = dropout}), {x},
                   block);
  }
  x = config.Add(nn::LayerNormalization(), {x}, "norm");
  config.outputs = {
      config.Add(nn::Dense(kLetters, nn::Activation::kIdentity, {.last_axis = true}), {x}, "next")};
  config.nodes.back().tied = {{"weight", "letter.table"}};
  return config;
}

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_LETTER_NETWORK_H_
