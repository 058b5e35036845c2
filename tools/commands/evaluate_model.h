// Runs a model over labelled images.
#ifndef TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_
#define TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::tools {

// Throws kInvalidArgument naming `path`, the images' file, when they are not of the model's size.
void CheckImageSize(const std::string& path, int64_t height, int64_t width, const nn::Model& model);

// `batch`, or fewer where the layers make much of one image, at least one: what a file makes of a
// batch is limited as what it may make of one (nn::kMaxExampleElements).
int64_t ImagesAtOnce(const nn::Model& model, int64_t batch);

// Adds probabilities of the images, which must be of the model's size. Throws CommandFailed naming
// the first image whose scores are not finite.
void EvaluateModel(nn::Model& model, const LabelledImages& images, int64_t batch,
                   absl::Span<BaseEvaluation* const> evaluations);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_EVALUATE_MODEL_H_
