#include "tidepool/nn/layers/layer_kinds.h"

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/transformer_block.h"

namespace tidepool::nn {
namespace {

struct Kinds {
  std::mutex mutex;
  std::map<std::string, LayerFactory> factories;

  template <typename Make>
  void Add(Make make) {
    factories.emplace(make().Kind(), [] { return std::unique_ptr<Layer>(new auto(Make()())); });
  }

  Kinds() {
    // Numbers that files must give are 0 here, which no layer takes.
    Add([] { return ActivationLayer(); });
    Add([] { return AveragePool1D(); });
    Add([] { return AveragePool2D(); });
    Add([] { return AveragePool3D(); });
    Add([] { return BatchNormalization(); });
    Add([] { return Bidirectional(); });
    Add([] { return Conv1D(0, {}); });
    Add([] { return Conv1DTranspose(0, {}); });
    Add([] { return Conv2D(0, 0, 0); });
    Add([] { return Conv2DTranspose(0, {}); });
    Add([] { return Conv3D(0, {}); });
    Add([] { return Conv3DTranspose(0, {}); });
    Add([] { return Cropping({}); });
    Add([] { return CrossAttention(0); });
    Add([] { return Dense(0); });
    Add([] { return DepthwiseConv2D(1, 0, 0); });
    Add([] { return DropoutLayer(); });
    Add([] { return Embedding(0, 0); });
    Add([] { return Flatten(); });
    Add([] { return GlobalPooling(); });
    Add([] { return GroupNormalization(0); });
    Add([] { return Gru(0); });
    Add([] { return L2Normalization(); });
    Add([] { return LastTimeStep(); });
    Add([] { return LayerNormalization(); });
    Add([] { return Lstm(0); });
    Add([] { return MaxPool1D(); });
    Add([] { return MaxPool2D(); });
    Add([] { return MaxPool3D(); });
    Add([] { return Merge(); });
    Add([] { return MultiHeadAttention(0); });
    Add([] { return PRelu(); });
    Add([] { return Permute({}); });
    Add([] { return PositionEmbedding(); });
    Add([] { return RepeatVector(0); });
    Add([] { return ReshapeLayer({}); });
    Add([] { return Resize({}); });
    Add([] { return Reverse(); });
    Add([] { return RmsNormalization(); });
    Add([] { return Scaling(); });
    Add([] { return SimpleRnn(0); });
    Add([] { return SinusoidalPositions(); });
    Add([] { return TimeDistributed(); });
    Add([] { return TransformerBlock(0); });
    Add([] { return Upsampling({}); });
    Add([] { return ZeroPadding({}); });
  }
};

// Never destroyed: layers may be read while the process ends.
Kinds& All() {
  static Kinds* const kinds = new Kinds;
  return *kinds;
}

}  // namespace

void RegisterLayer(const std::string& kind, LayerFactory factory) {
  const std::string made = factory()->Kind();
  if (made != kind) {
    ThrowInvalidArgument(
        absl::StrCat("RegisterLayer: \"", kind, "\" makes layers of kind \"", made, "\""));
  }
  Kinds& kinds = All();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  if (!kinds.factories.emplace(kind, factory).second) {
    ThrowInvalidArgument(absl::StrCat("RegisterLayer: \"", kind, "\" is known already"));
  }
}

std::unique_ptr<Layer> NewLayer(const std::string& kind) {
  Kinds& kinds = All();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  const auto found = kinds.factories.find(kind);
  return found == kinds.factories.end() ? nullptr : found->second();
}

std::vector<std::string> LayerKinds() {
  Kinds& kinds = All();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : kinds.factories) names.push_back(name);
  return names;
}

}  // namespace tidepool::nn
