// A network that computes when a test lets it, and what waits for it.
#ifndef TIDEPOOL_NN_PARALLEL_INFERENCE_TESTING_H_
#define TIDEPOOL_NN_PARALLEL_INFERENCE_TESTING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parallel/parallel_inference.h"

namespace tidepool::nn {

// Holds whoever computes until it is opened; refuses inputs with a negative element.
class Gate {
 public:
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  void Pass(int64_t rows) {
    std::unique_lock<std::mutex> lock(mutex_);
    batches_.push_back(rows);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
    --inside_;
  }
  void AwaitInside(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return inside_ >= count; });
  }
  std::vector<int64_t> batches() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int inside_ = 0;
  std::vector<int64_t> batches_;
};

class GateLayer final : public Layer {
 public:
  explicit GateLayer(Gate* gate) : gate_(gate) {}
  std::string Kind() const override { return "test_gate"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override {
    if (Min(x).Item<float>() < 0) ThrowInvalidArgument("a negative element");
    gate_->Pass(x.dim(0));
    return x;
  }

 private:
  Gate* gate_;
};

inline std::shared_ptr<const Network> Plain(uint64_t seed = 1) {
  return std::make_shared<Network>(
      NetworkConfig::Sequential({100}, {Dense(30, Activation::kTanh), Dense(7)}),
      NetworkOptions{.seed = seed});
}
inline std::shared_ptr<const Network> Gated(Gate& gate) {
  return std::make_shared<Network>(NetworkConfig::Sequential({100}, {GateLayer(&gate), Dense(7)}),
                                   NetworkOptions{.seed = 1});
}

inline void AwaitWaiting(const ParallelInference& service, int64_t count) {
  while (service.stats().waiting < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_INFERENCE_TESTING_H_
