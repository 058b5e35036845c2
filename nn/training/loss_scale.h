// LossScale: by what a loss is multiplied before its gradients are computed, so that small ones are
// not lost in f16.
//
//   const double by = scale.scale();
//   NDArray loss = Mean(losses) * by;  // its gradients are `by` times as large
//   ...
//   // finite.h. Else the step is skipped, and the scale halved.
//   if (scale.Observe(AllFinite(gradients))) {
//     updater.set_gradient_scale(1 / by);
//     updater.Apply(gradients, parameters);
//   }
//
// Trainer::set_loss_scale does that. The scale grows while all goes well and shrinks when gradients
// overflow, as PyTorch's GradScaler, whose defaults these are (loss_scale_values.py). bf16 and f32
// need none. Gradients that overflow where the scale can go no lower are not the scale's fault:
// has_diverged(). A plain value without a network: it is stored in checkpoints as its numbers.
// Threads: one at a time.
#ifndef TIDEPOOL_NN_TRAINING_LOSS_SCALE_H_
#define TIDEPOOL_NN_TRAINING_LOSS_SCALE_H_

#include <cstdint>
#include <string>

namespace tidepool::nn {

struct LossScaleConfig {
  double first = 65536;
  double growth = 2;     // after growth_interval good steps running; 1: never
  double backoff = 0.5;  // after a step that overflowed; 1: never, for a scale that stays
  int64_t growth_interval = 2000;
  double most = 0x1p24;        // it grows no further
  double least = 1;            // and shrinks no further
  int64_t diverges_after = 1;  // so many overflows running at a scale that can go no lower

  std::string ToString() const;  // "first 65536, growth 2 after 2000, backoff 0.5, ..."
  bool operator==(const LossScaleConfig&) const = default;
};

class LossScale {
 public:
  // Throws kInvalidArgument naming a number that is out of range.
  explicit LossScale(const LossScaleConfig& config = {});
  // One that stays; diverged after 16 overflows running.
  static LossScaleConfig Constant(double scale);

  double scale() const { return scale_; }
  // Whether the gradients of this step are all finite. Returns that, which says whether the step is
  // to be done; scale() is that of the next step from here on.
  bool Observe(bool finite);

  const LossScaleConfig& config() const { return config_; }
  int64_t good_steps() const { return good_steps_; }  // since the scale changed last
  int64_t skipped() const { return skipped_; }        // in all
  // Overflows running that no lower scale was left for, and whether they are as many as mean that
  // training has diverged.
  int64_t stuck() const { return stuck_; }
  bool has_diverged() const { return stuck_ >= config_.diverges_after; }
  // Of a run that is resumed. Throws kInvalidArgument for a scale that is not positive and for
  // negative numbers of steps.
  void Restore(double scale, int64_t good_steps, int64_t skipped, int64_t stuck = 0);
  std::string ToString() const;  // "loss scale 65536, 12 good steps, 1 skipped"
  bool operator==(const LossScale&) const = default;

 private:
  LossScaleConfig config_;
  double scale_;
  int64_t good_steps_ = 0;
  int64_t skipped_ = 0;
  int64_t stuck_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_LOSS_SCALE_H_
