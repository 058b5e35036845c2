#include "tidepool/tools/commands/evaluate_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/eval/do_evaluation.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/network_cost.h"
#include "tidepool/tools/commands/command_line.h"

namespace tidepool::tools {

void CheckImageSize(const std::string& path, int64_t height, int64_t width,
                    const nn::Model& model) {
  const Shape shape{height, width, 1};
  if (shape == model.network->input_shape()) return;
  ThrowInvalidArgument(absl::StrCat(OneLine(path), ": images are ", shape.ToString(), ", expected ",
                                    model.network->input_shape().ToString(),
                                    " as the model takes"));
}

int64_t ImagesAtOnce(const nn::Model& model, int64_t batch) {
  if (model.network->config() == nullptr) return batch;
  const double elements = nn::CostOfExample(*model.network->config()).elements;
  const double most = static_cast<double>(nn::kMaxExampleElements) / std::max(1.0, elements);
  return most < static_cast<double>(batch) ? std::max(int64_t{1}, static_cast<int64_t>(most))
                                           : batch;
}

void EvaluateModel(nn::Model& model, const LabelledImages& images, int64_t batch,
                   absl::Span<BaseEvaluation* const> evaluations) {
  nn::ImageBatches batches(images, batch);
  try {
    DoEvaluation(*model.network, batches, {.outputs = OutputsAre::kLogits}, evaluations);
  } catch (const ScoresNotFiniteError& error) {
    throw CommandFailed(absl::StrCat("image ", error.example(), ": its scores are not finite"));
  }
}

}  // namespace tidepool::tools
