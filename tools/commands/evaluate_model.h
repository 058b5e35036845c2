// Runs a model over labelled images.
#ifndef TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_
#define TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_

#include "tidepool/eval/evaluation.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::tools {

// Throws kInvalidArgument when the images are not of the model's size.
Evaluation EvaluateModel(nn::Model& model, const LabelledImages& images, int64_t batch);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_
