// Listeners of a training: what happens after each step, each epoch and at the end, with
// throughput, time left and memory.
//
//   ProgressPrinter printer(stdout);
//   TrainingWatch watch({.epochs = 10, .examples = images.size()});
//   watch.Add(&printer);
//   for (...) {
//     for (...) watch.OnStep(batch.size(), loss);
//     watch.OnEpoch(accuracy);
//   }
//   watch.OnEnd();
//
// Knows no network: whoever trains calls it. Listeners outlive the watch or are removed; what one
// throws reaches whoever called, and those behind it hear nothing. Threads: one at a time. Cost: a
// step adds to a few numbers; an epoch looks at the ledger.
#ifndef TIDEPOOL_NN_TRAINING_LISTENER_H_
#define TIDEPOOL_NN_TRAINING_LISTENER_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <vector>

namespace tidepool::nn {

class LossScale;

// How far a training is. What is not known is NaN.
struct TrainingReport {
  int64_t step = 0;                                         // steps so far, of all epochs
  int64_t epoch = 1;                                        // the one it is in, or that has ended
  int64_t epochs = 0;                                       // in all; 0: not known
  int64_t examples = 0;                                     // of this epoch so far
  int64_t epoch_examples = 0;                               // of an epoch; 0: not known
  double loss = std::numeric_limits<double>::quiet_NaN();   // of the step, or the mean of the
                                                            // epoch's, by examples
  double score = std::numeric_limits<double>::quiet_NaN();  // of the epoch
  double loss_scale = std::numeric_limits<double>::quiet_NaN();  // of the next step
  int64_t skipped = 0;             // of `step`: their gradients overflowed
  double seconds = 0;              // since the beginning
  double examples_per_second = 0;  // of this epoch
  double seconds_left =
      std::numeric_limits<double>::quiet_NaN();  // at the pace of all examples so far
  // Of the ledger, all devices together; not of steps (0), for which it would cost too much.
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
};

// Told of a training by TrainingWatch, on the thread that trains. What it throws comes out of the step.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;
  // After each step, after an epoch's last one, and after the last epoch. They do nothing here.
  virtual void OnStep(const TrainingReport&) {}
  virtual void OnEpoch(const TrainingReport&) {}
  virtual void OnEnd(const TrainingReport&) {}
};

// Makes the reports.
class TrainingWatch {
 public:
  // What there is to go through.
  struct Config {
    int64_t epochs = 0;    // in all; 0: not known, as below, and then there is no time left
    int64_t examples = 0;  // of an epoch
    // Of a run that is resumed.
    int64_t first_step = 0;
    int64_t first_epoch = 1;
    // Seconds from any moment on, never less than before; null: those of the system's steady clock.
    std::function<double()> clock;
  };
  // Time runs from here. Throws kInvalidArgument for negative numbers and a first epoch below 1.
  explicit TrainingWatch(Config config);

  // In the order in which they are told. Null is refused.
  void Add(TrainingListener* listener);
  void Remove(TrainingListener* listener);

  // Whose scale and skipped steps reports tell (Trainer::loss_scale()); outlives this. Losses of
  // skipped steps do not count in an epoch's. Null: none.
  void set_loss_scale(const LossScale* scale);

  // After a step of `examples` examples with that mean loss.
  void OnStep(int64_t examples, double loss);
  void OnEpoch(double score = std::numeric_limits<double>::quiet_NaN());
  void OnEnd();

  TrainingReport report() const;  // as of now, the ledger's numbers included

 private:
  TrainingReport Now() const;
  void AddMemory(TrainingReport* report) const;
  void Tell(void (TrainingListener::*what)(const TrainingReport&), const TrainingReport& report);

  Config config_;
  std::vector<TrainingListener*> listeners_;
  double start_, epoch_start_;
  int64_t step_, epoch_;
  int64_t examples_ = 0;      // of this epoch
  int64_t all_examples_ = 0;  // since the beginning
  double loss_sum_ = 0;       // of this epoch's examples, without those of skipped steps:
  int64_t loss_examples_ = 0;
  const LossScale* scale_ = nullptr;
  int64_t skipped_ = 0;  // so far
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();
  double score_ = std::numeric_limits<double>::quiet_NaN();  // the last epoch's
};

// A line for each epoch, and for a step now and then, at most one in `seconds`.
class ProgressPrinter final : public TrainingListener {
 public:
  explicit ProgressPrinter(std::FILE* file, double seconds = 10) : file_(file), seconds_(seconds) {}

  void OnStep(const TrainingReport& report) override;
  void OnEpoch(const TrainingReport& report) override;
  void OnEnd(const TrainingReport& report) override;

 private:
  std::FILE* file_;
  double seconds_;
  double last_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_LISTENER_H_
