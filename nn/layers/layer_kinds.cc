#include "tidepool/nn/layers/layer_kinds.h"

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/normalization.h"

namespace tidepool::nn {
namespace {

struct Kinds {
  std::mutex mutex;
  std::map<std::string, LayerFactory> factories;

  template <typename Make>
  void Add(Make make) {
    factories.emplace(make()->Kind(), [] { return std::unique_ptr<Layer>(Make()()); });
  }

  Kinds() {
    // Numbers that files must give are 0 here, which no layer takes.
    Add([] { return std::make_unique<ActivationLayer>(); });
    Add([] { return std::make_unique<BatchNormalization>(); });
    Add([] { return std::make_unique<Conv2D>(0, 0, 0); });
    Add([] { return std::make_unique<Dense>(0); });
    Add([] { return std::make_unique<GroupNormalization>(0); });
    Add([] { return std::make_unique<LayerNormalization>(); });
    Add([] { return std::make_unique<MaxPool2D>(); });
    Add([] { return std::make_unique<MultiHeadAttention>(0); });
    Add([] { return std::make_unique<RmsNormalization>(); });
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
    ThrowInvalidArgument(absl::StrCat("RegisterLayer: \"", kind, "\" makes layers of kind \"", made, "\""));
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
