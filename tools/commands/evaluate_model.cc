#include "tidepool/tools/commands/evaluate_model.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/data/image_batches.h"

namespace tidepool::tools {

Evaluation EvaluateModel(nn::Model& model, const LabelledImages& images, int64_t batch) {
  if (const Shape shape{images.height, images.width, 1}; shape != model.network->input_shape()) {
    ThrowInvalidArgument(absl::StrCat("images are ", shape.ToString(), ", the model takes ",
                                      model.network->input_shape().ToString()));
  }
  Evaluation evaluation(static_cast<int>(model.classes));
  const nn::ImageBatches batches(images, batch);
  for (int64_t i = 0; i < batches.size(); ++i) {
    NDArray labels;
    model.network->Infer(
        [&] {
          nn::Batch made = batches.Make(i);
          labels = made.labels;
          return made.features;
        },
        [&](const NDArray& scores) {
          evaluation.AddScores(
              absl::MakeConstSpan(labels.data<int64_t>(), labels.NumElements()),
              absl::MakeConstSpan(scores.data<float>(), scores.NumElements()));
          labels = NDArray();
        });
  }
  return evaluation;
}

}  // namespace tidepool::tools
