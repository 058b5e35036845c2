// Measures a network by any number of evaluations in one pass over data.
//
//   Evaluation evaluation(10);
//   ROCMultiClass roc(10);
//   DoEvaluation(network, batches, {.outputs = OutputsAre::kLogits}, evaluation, roc);
//
// Each batch is one cycle of the network's inference workspace: `next` is called in it, so that
// what it makes without a place of its own is there (as Trainer::Step's maker); outputs are there;
// evaluations add up in plain memory of their own. From the second batch of a size on no array
// comes from the system.
//
// Features are of the network's one input, labels of its output: as EvaluationBatch says, [batch,
// ...] classes or of the output's shape. Sequences are rows, one for each position. `labels_mask`
// weighs what is measured: of a shape that the output's begins with; without one, a `features_mask`
// of sequences does where the output has its positions. Labels and masks may be on any device.
//
// Errors of the network, of `next` and of evaluations leave as they are, those of Tidepool's types as
// copies with the batch and its examples in front; evaluations then have the batches before it, those that stand before the one
// that refused have this one too.
#ifndef TIDEPOOL_EVAL_DO_EVALUATION_H_
#define TIDEPOOL_EVAL_DO_EVALUATION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/network.h"

namespace tidepool {

// What the network's last layer gives, and so what evaluations are given.
enum class OutputsAre {
  kScores,        // as they are
  kLogits,        // probabilities by a softmax over the last axis
  kBinaryLogits,  // probabilities by a sigmoid
};

// How outputs become scores.
struct DoEvaluationOptions {
  OutputsAre outputs = OutputsAre::kScores;  // what evaluations see is scores or probabilities
};

// What one pass went through.
struct EvaluatedCounts {
  int64_t batches = 0, examples = 0;  // an example is a row of a batch
};

// What the network says of an example is infinite or NaN, though its mask does not leave it out.
// kOutOfRange.
class ScoresNotFiniteError : public Error {
 public:
  explicit ScoresNotFiniteError(int64_t example);
  int64_t example() const { return example_; }  // from 0, of the whole pass

 private:
  int64_t example_;
};

// The next batch, none after the last. It is called once more than there are batches.
using NextBatch = absl::FunctionRef<std::optional<nn::Batch>()>;

// One pass until `next` has no more, as the head of this header says. The evaluations, of which there
// may be none, are added to, not reset; throws kInvalidArgument for one that is null.
EvaluatedCounts DoEvaluation(nn::Network& network, NextBatch next,
                             const DoEvaluationOptions& options,
                             absl::Span<BaseEvaluation* const> evaluations);

// The same, of evaluations of any kinds.
template <typename... E>
EvaluatedCounts DoEvaluation(nn::Network& network, NextBatch next,
                             const DoEvaluationOptions& options, E&... evaluations) {
  const std::array<BaseEvaluation*, sizeof...(E)> list = {&evaluations...};
  return DoEvaluation(network, next, options, absl::Span<BaseEvaluation* const>(list));
}

// The epoch of an iterator, from where it is; its Reset() is the caller's.
inline EvaluatedCounts DoEvaluation(nn::Network& network, nn::DataSetIterator& batches,
                                    const DoEvaluationOptions& options,
                                    absl::Span<BaseEvaluation* const> evaluations) {
  return DoEvaluation(
      network, [&batches] { return batches.Next(); }, options, evaluations);
}

// The same, of evaluations of any kinds.
template <typename... E>
EvaluatedCounts DoEvaluation(nn::Network& network, nn::DataSetIterator& batches,
                             const DoEvaluationOptions& options, E&... evaluations) {
  return DoEvaluation(
      network, [&batches] { return batches.Next(); }, options, evaluations...);
}

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_DO_EVALUATION_H_
