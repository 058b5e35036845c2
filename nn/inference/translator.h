// Translator: what a predictor's inputs and outputs mean. One object may serve many predictors; its
// functions run on their threads.
#ifndef TIDEPOOL_NN_INFERENCE_TRANSLATOR_H_
#define TIDEPOOL_NN_INFERENCE_TRANSLATOR_H_

#include "tidepool/ndarray/manager/nd_list.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/inference/batchifier.h"
#include "tidepool/nn/model.h"

namespace tidepool::nn {

struct PredictorContext {
  const Model& model;
  // Of this call: what is made without another destination is its, lives in the predictor's
  // workspace, and is gone when the call returns.
  NDManager& request;
  // For what is kept between calls: made in Prepare, capped from then on.
  NDManager& predictor;
};

template <typename In, typename Out>
class Translator {
 public:
  virtual ~Translator() = default;

  // Before the predictor's first call, with its manager entered: vocabularies, constants, masks.
  virtual void Prepare(PredictorContext&) {}
  // The arrays of one input, without a batch axis if there is a batchifier.
  virtual NDList ProcessInput(PredictorContext& context, const In& input) = 0;
  // The result of the network's outputs for one input. Arrays in it (NDArray, NDList, or containers
  // MoveOut knows) are moved out to the caller by the predictor.
  virtual Out ProcessOutput(PredictorContext& context, NDList outputs) = 0;
  // Null: inputs are batches already, and are run one by one.
  virtual const Batchifier* batchifier() const {
    static const StackBatchifier stack;
    return &stack;
  }
};

// Arrays in, arrays out: a batch each.
class NoopTranslator final : public Translator<NDList, NDList> {
 public:
  NDList ProcessInput(PredictorContext&, const NDList& input) override { return input; }
  NDList ProcessOutput(PredictorContext&, NDList outputs) override { return outputs; }
  const Batchifier* batchifier() const override { return nullptr; }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_TRANSLATOR_H_
