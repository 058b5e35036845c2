// EarlyStopping: when a training has nothing more to gain, by a score of each epoch (a loss or an
// accuracy on images it does not train on).
//
//   EarlyStopping stopping({.patience = 5});
//   while (!stopping.should_stop()) {
//     ...                                            // an epoch
//     if (stopping.Observe(loss)) SaveModel(...);    // the best so far
//   }
//
// A plain value without a network: checkpoints store its numbers and its reason. Threads: one at a time.
#ifndef TIDEPOOL_NN_TRAINING_EARLY_STOPPING_H_
#define TIDEPOOL_NN_TRAINING_EARLY_STOPPING_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tidepool::nn {

// When a training ends.
struct EarlyStoppingConfig {
  bool larger_is_better = false;  // an accuracy; else a loss
  int64_t patience =
      10;  // epochs without an improvement, one behind the other, after which it stops
  double least_improvement = 0;     // what is less, or as much, is none
  int64_t most_epochs = INT64_MAX;  // in all
  std::optional<double> goal;       // a score as good as that ends it
  bool stops_at_nan = true;         // a training that has diverged; else NaN is no improvement
  bool operator==(const EarlyStoppingConfig&) const = default;
};

// Why it ended; kNone: it goes on.
enum class StopReason : uint8_t { kNone, kPatience, kMostEpochs, kGoal, kNan };

class EarlyStopping {
 public:
  // Throws kInvalidArgument naming a number that is out of range.
  explicit EarlyStopping(const EarlyStoppingConfig& config = {});

  // The score of the next epoch. Returns whether it is the best so far, by more than
  // least_improvement. The first one that is not NaN is. Any number of times, also behind the end.
  bool Observe(double score);

  // So far: whether and why it is over, and how many scores there were.
  bool should_stop() const { return reason_ != StopReason::kNone; }
  StopReason reason() const { return reason_; }
  int64_t epochs() const { return epochs_; }
  int64_t best_epoch() const { return best_epoch_; }  // from 0; -1: none yet
  double best_score() const { return best_score_; }   // NaN: none yet
  // As constructed.
  const EarlyStoppingConfig& config() const { return config_; }
  // Of a run that is resumed, before the next Observe. That it was over is found again by the configuration: patience, most epochs, a
  // best score that reaches the goal, scores that were all NaN. `reason` says it where only scores that are gone tell: a NaN
  // behind other ones, a goal that was reached by no improvement, scores that came behind the end. Throws kInvalidArgument for a best
  // epoch that is not one of them.
  void Restore(int64_t epochs, int64_t best_epoch, double best_score,
               StopReason reason = StopReason::kNone);
  std::string ToString()
      const;  // "stopped after 12 epochs: no improvement for 5; best 0.031 in epoch 6"

 private:
  void FindReason(double score);

  EarlyStoppingConfig config_;
  int64_t epochs_ = 0;
  int64_t best_epoch_ = -1;
  double best_score_;
  StopReason reason_ = StopReason::kNone;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_EARLY_STOPPING_H_
