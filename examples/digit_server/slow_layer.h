// A model that computes when a test lets it.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_SLOW_LAYER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_SLOW_LAYER_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"

namespace tidepool {

// Says that an image of it takes `operations`, and takes as long as the test lets it.
class SlowLayer final : public nn::Layer {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t images = 0;  // that came to it
    int inside = 0;      // batches
    bool may_end = false;

    void AwaitInside(int batches) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return inside >= batches; });
    }
    void Open() {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        may_end = true;
      }
      changed.notify_all();
    }
    void Close() {
      const std::lock_guard<std::mutex> lock(mutex);
      may_end = false;
    }
  };
  SlowLayer(State& state, double operations) : state_(state), operations_(operations) {}
  std::string Kind() const override { return "slow"; }
  Shape OutputShape(const Shape&) const override { return {10}; }
  nn::LayerCost CostOf(absl::Span<const Shape>) const override { return {operations_, 10}; }
  NDArray Forward(nn::LayerContext&, const NDArray& input) const override {
    std::unique_lock<std::mutex> lock(state_.mutex);
    state_.images += input.dim(0);
    ++state_.inside;
    state_.changed.notify_all();
    state_.changed.wait(lock, [&] { return state_.may_end; });
    --state_.inside;
    return Zeros({input.dim(0), 10});
  }

 private:
  State& state_;
  const double operations_;
};

// By default an image of it is a part of a request.
inline nn::Model SlowModel(SlowLayer::State& state, double operations = 1e12) {
  return nn::Model("slow", 10,
                   std::make_unique<nn::Network>(
                       Shape{28, 28, 1}, std::vector<nn::AnyLayer>{SlowLayer(state, operations)}));
}

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_SLOW_LAYER_H_
