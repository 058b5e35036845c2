// Updaters: how parameters follow their gradient. State is persistent, on the heap.
#ifndef TIDEPOOL_NN_TRAINING_UPDATER_H_
#define TIDEPOOL_NN_TRAINING_UPDATER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/training/schedule.h"

namespace tidepool::nn {

// The formulas stand in ndarray/kernel/attributes.h; those of PyTorch's torch.optim, whose defaults
// these have. kNesterovs is that for a learning rate that stays the same: its velocity holds the rates
// of earlier steps.
enum class UpdaterKind : uint8_t { kSgd, kNesterovs, kAdaGrad, kRmsProp, kAdam, kAdamW };

// What is done to gradients that are too large, before l1 and l2 are added. A norm that is NaN
// makes the parameters NaN, as the gradient would.
enum class ClippingKind : uint8_t {
  kNone,
  kValue,       // each element to [-limit, limit]
  kNormOfEach,  // of each parameter (ParameterGroup) by limit / its norm, where that is less than 1
  kGlobalNorm,  // of all that are updated by limit / their norm together, likewise
};
// A plain value.
struct GradientClipping {
  ClippingKind kind = ClippingKind::kNone;  // what is limited
  double limit = 1;                         // above 0
  bool operator==(const GradientClipping&) const = default;
};

// A plain value: kinds and numbers.
struct UpdaterConfig {
  UpdaterKind kind = UpdaterKind::kAdam;  // by which formula
  double learning_rate = 1e-3;            // times the schedule's factor
  double momentum = 0.9;                  // kNesterovs
  double decay = 0.99;                    // kRmsProp: what of the mean square stays
  double beta1 = 0.9;                     // kAdam, kAdamW
  double beta2 = 0.999;                   // likewise
  double epsilon = 1e-8;                  // kAdaGrad, kRmsProp, kAdam, kAdamW
  double l2 = 0;                          // times the parameter, added to the gradient
  double l1 = 0;                          // times the sign of the parameter, likewise
  double weight_decay = 0;    // kAdamW: parameters shrink by learning_rate * weight_decay of
                              // themselves, beside the gradient
  Schedule schedule;          // of the learning rate
  GradientClipping clipping;  // before everything else

  // Each kind with the learning rate that suits it: SGD 0.1, Nesterov momentum 0.02, AdaGrad (with
  // an epsilon of 1e-10) and RMSProp 0.01, Adam and AdamW 0.001, and AdamW with a weight_decay of
  // 0.01.
  static UpdaterConfig Of(UpdaterKind kind);
  // Throws kInvalidArgument for a number that is out of range, naming it, and for a weight_decay of
  // another kind than kAdamW.
  void Check() const;
  std::string ToString() const;  // "adam, learning rate 0.001, ...", six digits of each number
  // The same with as many digits as tell each number from any other: for comparing.
  std::string ToExactString() const;
  bool operator==(const UpdaterConfig&) const = default;
};

// "sgd", "nesterovs", "adagrad", "rmsprop", "adam" or "adamw"
const char* UpdaterName(UpdaterKind kind);
// Throws kInvalidArgument for anything else, naming them.
UpdaterKind ParseUpdater(const std::string& name);

// Elements [begin, end) of the parameters that are treated in their own way: those of one array in
// most cases.
struct ParameterGroup {
  int64_t begin = 0, end = 0;  // flat
  double rate = 1;             // times the learning rate
  bool decays = true;  // l2, l1 and weight_decay apply; not to biases and scales of norms, say
  // Not updated: its gradient is not read and counts in no norm, its state stays.
  bool frozen = false;
  bool operator==(const ParameterGroup&) const = default;
};

class Updater {
 public:
  // State for parameters of `shape` and `dtype` (f32, f64) on `device`; kNone: none yet, KeepOnly
  // makes what it keeps. Throws as UpdaterConfig::Check, and as SetGroups.
  enum class State : uint8_t { kWhole, kNone };
  Updater(const UpdaterConfig& config, const Shape& shape, Device device = Host(),
          DType dtype = DType::kFloat32, std::vector<ParameterGroup> groups = {},
          State state = State::kWhole);

  // From the next step on; the state stays. Ascending and apart; elements in between are groups of
  // their own as ParameterGroup is made. None: all elements are one. Neighbours that are treated
  // alike are updated together, but where each one's norm is clipped: a kernel for each run of
  // them. Throws kInvalidArgument naming the group.
  void SetGroups(std::vector<ParameterGroup> groups);
  // All elements in order, whoever keeps them: those of SetGroups and those in between, neighbours
  // that are treated alike as one, but where each one's norm is clipped.
  const std::vector<ParameterGroup>& groups() const { return groups_; }

  // Keeps the state of these ranges of elements, ascending and apart, and updates them alone from
  // here on, where others hold and update the rest (distributed/distributed_trainer.h); the state
  // of all others is given back. state() has the ranges one behind the other. A global norm is not
  // this updater's to know then: who does puts its clipping into the gradient scale. Throws
  // kInvalidArgument naming the range, kFailedPrecondition the second time, kUnimplemented where
  // each parameter's norm is clipped; OutOfMemoryError: nothing has changed.
  void KeepOnly(std::vector<std::pair<int64_t, int64_t>> ranges);
  bool keeps_all() const { return keeps_all_; }
  // Throws kFailedPrecondition after KeepOnly: `who` would do its work on a part.
  void CheckKeepsAll(const char* who) const;

  // gradients and parameters are dense where there are groups.
  void Apply(const NDArray& gradients, NDArray& parameters);
  // The same where those are of what is kept alone, as state() has it. Throws kFailedPrecondition
  // before KeepOnly.
  void ApplyToKept(const NDArray& gradients, NDArray& parameters);
  // Parameters that are treated as `as` says (its range is not looked at), by a state that the caller has: `first` and
  // `second` are the arrays of state_arrays(), null beyond, and all are dense and of one size. The next step's; Advance() counts it
  // when all are done. For what comes and goes (budget/spilled_trainer.h). Clipped by the norm of each, that is of `gradients`: bits are
  // those of Apply() where they end as the group does, with zeros. `norm`: [1], of all that is updated, by who clips by that. Throws
  // kUnimplemented where gradients are clipped by it and it is null, or have a scale, which takes all of them at once.
  void ApplyTo(const ParameterGroup& as, const NDArray& gradients, NDArray& parameters,
               NDArray* first, NDArray* second, const NDArray* norm = nullptr) const;
  int state_arrays() const;  // of each element
  // How elements [begin, end) are treated, by the groups there are. With `exactly` they, or they and what stands behind them up to
  // `padded_end`, are a group of their own. Null: not all in one way.
  std::optional<ParameterGroup> GroupOf(int64_t begin, int64_t end, int64_t padded_end,
                                        bool exactly) const;
  // Makes in the current place what Apply() makes there, in its order, and updates nothing: norms that gradients are clipped by. For
  // steps that are run to be measured.
  void MakeWhatApplyMakes(const NDArray& gradients) const;

  // The same in parts, for steps that are captured and replayed: what changes from step to step
  // lies in numbers(), an array on the device. SetNumbers writes it for the next step, ApplyNumbers
  // queues the update by it, Advance counts the step once it is queued. The norms of clipping stay
  // on the device. `skip`: [], where gradients are (FiniteMark of finite.h, say); unless it is 0 by the
  // time that the device gets there, the update leaves parameters and state as they are.
  void SetNumbers();
  void ApplyNumbers(const NDArray& gradients, NDArray& parameters, const NDArray* skip = nullptr);
  void Advance() { ++steps_; }
  // [kUpdateNumbers], or a row for each run of groups; undefined before the first SetNumbers.
  const NDArray& numbers() const { return numbers_; }

  // As constructed, and the updates so far.
  const UpdaterConfig& config() const { return config_; }
  int64_t steps() const { return steps_; }
  // Of a run that is resumed.
  void set_steps(int64_t steps);  // throws kInvalidArgument unless 0 to 2^53
  // What a schedule by epochs goes by.
  int64_t epoch() const { return epoch_; }
  void set_epoch(int64_t epoch);  // likewise
  // What gradients are multiplied by before anything else: of a loss that was scaled, 1 / scale
  // (loss_scale.h).
  void set_gradient_scale(double scale);
  double gradient_scale() const { return gradient_scale_; }
  double learning_rate() const;  // of the next step
  // What it keeps between steps; none for SGD.
  std::vector<const NDArray*> state() const;

 private:
  bool ClipsByNorm() const;
  Shape NumbersShape() const;
  void CutRuns();
  // One run of elements: its part of the arrays, or all of them where there is one run.
  void Queue(size_t run, const NDArray& gradients, NDArray& parameters, const NDArray* numbers);
  void Update(const ParameterGroup& run, const NDArray& g, NDArray& p, NDArray* first,
              NDArray* second, const NDArray* numbers) const;
  void QueueRuns(const NDArray& gradients, NDArray& parameters, const NDArray* numbers);
  void WriteNumbers(absl::Span<const ParameterGroup> runs, NDArray& numbers) const;
  void ClipNumbers(const NDArray& gradients, NDArray& numbers) const;
  void ScaleByNorms(const NDArray& norms, NDArray& numbers) const;
  template <typename Visit>
  void WithAttributes(const ParameterGroup& run, Visit visit) const;

  UpdaterConfig config_;
  Device device_;
  DType dtype_;
  int64_t elements_;
  bool is_one_run_ = true;
  std::vector<ParameterGroup> groups_;             // of all elements
  std::vector<ParameterGroup> runs_;               // that are updated
  std::vector<int64_t> state_begins_;              // of those, in the state
  std::vector<std::pair<int64_t, int64_t>> kept_;  // KeepOnly; with keeps_all_ all
  bool keeps_all_ = true;
  bool applies_to_kept_ = false;  // in ApplyToKept
  NDArray first_, second_;        // velocity, sum or mean of squares, or the two moments
  NDArray numbers_;
  double gradient_scale_ = 1;
  int64_t steps_ = 0;
  int64_t epoch_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_UPDATER_H_
