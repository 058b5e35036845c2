#include "tidepool/tools/benchmarks/training_networks.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/models.h"

namespace tidepool::tools {

nn::NetworkConfig TrainingNetwork(const std::string& model, const Shape& image, int64_t classes) {
  using namespace nn;  // NOLINT
  constexpr int64_t kUnits = 128, kWidth = 128, kHeads = 4;
  const ReshapeLayer rows({image[0], image[1]});
  if (model == "mlp" || model == "lenet")
    return NetworkConfig::Sequential(image, LayersOf(model, classes));
  if (model == "residual") return ResidualConfig(image, classes, {32, 64});
  if (model == "lstm") {
    return NetworkConfig::Sequential(
        image,
        {rows, Lstm(kUnits), Lstm(kUnits, {.output = RecurrentOutput::kLast}), Dense(classes)});
  }
  if (model == "transformer") {
    return NetworkConfig::Sequential(
        image, {rows, Dense(kWidth, Activation::kIdentity, {.last_axis = true}),
                PositionEmbedding(), TransformerBlock(kHeads), TransformerBlock(kHeads),
                LayerNormalization(), GlobalPooling(), Dense(classes)});
  }
  ThrowInvalidArgument(
      absl::StrCat("model is \"", model, "\", expected mlp, lenet, residual, lstm or transformer"));
}

}  // namespace tidepool::tools
