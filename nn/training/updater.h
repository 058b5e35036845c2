// Updaters: how parameters follow their gradient. State is persistent, on the heap.
#ifndef TIDEPOOL_NN_TRAINING_UPDATER_H_
#define TIDEPOOL_NN_TRAINING_UPDATER_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

enum class UpdaterKind : uint8_t { kSgd, kNesterovs, kAdam, kAdamW };

struct UpdaterConfig {
  UpdaterKind kind = UpdaterKind::kAdam;
  double learning_rate = 1e-3;
  double momentum = 0.9;  // kNesterovs
  double beta1 = 0.9;     // kAdam, kAdamW
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;            // added to the gradient
  double weight_decay = 0;  // kAdamW: parameters shrink by learning_rate * weight_decay of themselves, beside the gradient
  // The rate falls along half a cosine from learning_rate to a hundredth of it within so many
  // steps, and stays there (Loshchilov and Hutter, "SGDR", 2017, without restarts). 0: it is
  // constant.
  int64_t decay_steps = 0;

  // Each kind with the learning rate that suits it: SGD 0.1, Nesterov momentum 0.02, Adam and AdamW 0.001, and AdamW
  // with a weight_decay of 0.01.
  static UpdaterConfig Of(UpdaterKind kind);
};

// "sgd", "nesterovs", "adam" or "adamw"; throws kInvalidArgument for anything else, naming them.
UpdaterKind ParseUpdater(const std::string& name);

class Updater {
 public:
  // State for parameters of `shape` and `dtype` (f32, f64) on `device`. Throws kInvalidArgument when a number is out of
  // range, and for a weight_decay of another kind than kAdamW.
  Updater(const UpdaterConfig& config, const Shape& shape, Device device = Host(),
          DType dtype = DType::kFloat32);

  void Apply(const NDArray& gradients, NDArray& parameters);

  // The same in parts, for steps that are captured and replayed: what changes from step to step lies in
  // numbers(), an array on the device. SetNumbers writes it for the next step, ApplyNumbers queues the
  // update by it, Advance counts the step once it is queued.
  void SetNumbers();
  void ApplyNumbers(const NDArray& gradients, NDArray& parameters);
  void Advance() { ++steps_; }
  const NDArray& numbers() const { return numbers_; }  // undefined before the first SetNumbers

  int64_t steps() const { return steps_; }
  double learning_rate() const;  // of the next step
  // What it keeps between steps; none for SGD.
  std::vector<const NDArray*> state() const;

 private:
  SgdAttributes Sgd() const { return {learning_rate(), config_.l2}; }
  NesterovsAttributes Nesterovs() const { return {learning_rate(), config_.momentum, config_.l2}; }
  AdamAttributes Adam() const {
    return {learning_rate(), config_.beta1, config_.beta2,       config_.epsilon,
            config_.l2,      steps_ + 1,    config_.weight_decay};
  }
  void Queue(const NDArray& gradients, NDArray& parameters, const NDArray* numbers);

  UpdaterConfig config_;
  Device device_;
  DType dtype_;
  NDArray first_, second_;  // velocity, or the two moments
  NDArray numbers_;
  int64_t steps_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_UPDATER_H_
