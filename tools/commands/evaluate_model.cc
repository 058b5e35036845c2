#include "tidepool/tools/commands/evaluate_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/image_batches.h"
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

Evaluation EvaluateModel(nn::Model& model, const LabelledImages& images, int64_t batch) {
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
        [&](const NDArray& device_scores) {
          const NDArray scores = device_scores.To(Host());
          const absl::Span<const float> numbers(scores.data<float>(), static_cast<size_t>(scores.NumElements()));
          const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float score) { return !std::isfinite(score); });
          if (bad != numbers.end()) {
            throw CommandFailed(absl::StrCat("image ", i * batch + (bad - numbers.begin()) / model.classes,
                                             ": its scores are not finite"));
          }
          evaluation.AddScores(absl::MakeConstSpan(labels.data<int64_t>(), labels.NumElements()),
                               numbers);
          labels = NDArray();
        });
  }
  return evaluation;
}

}  // namespace tidepool::tools
