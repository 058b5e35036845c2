// Of spilled_trainer.cc: the parameters of a network in a file, as a pass has them.
#ifndef TIDEPOOL_NN_BUDGET_SPILLED_HOST_H_
#define TIDEPOOL_NN_BUDGET_SPILLED_HOST_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/budget/parameter_plan.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/network/parameter_host.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

class SpilledTrainer::Host final : public ParameterHost {
 public:
  Host(Network& network, const UpdaterConfig& updater, const SpilledTrainerOptions& options);
  ~Host();

  Network& network() const { return network_; }
  Updater& updater() { return updater_; }
  SpilledTrainerStats stats() const;

  // What the last pass has written is what the parameters are from here on; throws where it has not written all. Else
  // it is dropped.
  void Commit();
  void Drop() noexcept;
  // Of a step: running averages, say, as they are now, and as they were then.
  void KeepBeside();
  void RestoreBeside();
  // What was written becomes what is kept.
  void TakeNew() noexcept;

  NDArray Value(int parameter) const;
  // What the updater keeps of it, that array; zeros where it has none yet.
  NDArray State(int parameter, int array) const;
  // All of them at once, or none. Each is to be filled; zeros where it is not.
  void Replace(absl::FunctionRef<void(int parameter, NDArray& value)> fill_value,
               absl::FunctionRef<void(int parameter, int array, NDArray& state)> fill_state);
  // `change` is given a unit's parameters, in memory for as long as it takes.
  void ChangeUnitOf(int parameter, absl::FunctionRef<void(NDArray& value)> change);

  // ParameterHost:
  void Begin(Pass pass) override;
  const NDArray& value(int parameter) const override { return Views(parameter).value; }
  const NDArray& gradient(int parameter) const override { return Views(parameter).gradient; }
  void EnterForward(int layer) override;
  void EnterBackward(int layer) override;
  void GradientIsFinal(int parameter) override;
  void End() noexcept override;

 private:
  struct Unit;
  struct Parameter {
    int unit = 0;
    int64_t begin = 0, elements = 0;  // from the begin of the unit; with what pads it, zeros
    NDArray value, gradient;          // of the pass
    NDArray whole_value, whole_gradient, first, second;  // flat, padded
  };
  const Parameter& Views(int parameter) const {
    return parameters_[static_cast<size_t>(parameter)];
  }
  void MakeUnits();
  void ChoosePlan(const SpilledTrainerOptions& options);
  void SortByPlace();
  void FillFile();
  void PlaceViews();
  void ForwardTo(int place);
  void BackwardTo(int place);
  void StartRead(Unit& unit);
  void StartState(Unit& unit);
  void Update(Unit& unit);
  void Apply(Unit& unit, const NDArray* norm);
  void Written(Unit& unit);
  // Of spilled_norm.cc: where gradients are clipped by the norm of all of them, which is known behind the pass.
  void FindPieces();
  void ZeroPadding(const Unit& unit);
  void KeepGradients(Unit& unit);
  void UpdateByNorm();
  SpilledBytes WaitFor(SpillTransfer& transfer);
  // Of a parameter, where `whole` is its unit, or what the updater keeps of that, and `array` which of it.
  NDArray ViewIn(NDArray& whole, int parameter, int array = 0) const;
  int64_t ElementsOf(const Unit& unit) const;

  Network& network_;
  Updater updater_;
  const std::shared_ptr<SpillFile> file_;
  const size_t element_;
  int places_ = 0;
  std::vector<int> place_of_layer_;
  std::vector<Parameter> parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<UnitUse> uses_;
  ParameterPlan plan_;
  // Units that something begins or ends for at a place, so that a pass looks at each a few times, however many there are.
  struct Events {
    std::vector<Unit*> first, last, outer, inner,
        state;  // UnitUse, and ParameterPlan of those names
  };
  std::vector<Events> at_;
  const Events& At(int place) const { return at_[static_cast<size_t>(place)]; }
  int64_t read_bytes_ = 0, written_bytes_ = 0;
  double stall_seconds_ = 0;

  const bool clips_all_;  // by the norm of all gradients
  // Gradients that one norm is of: of one unit and one run of the updater's groups, in the order of the parameters.
  struct Piece {
    int unit = 0;
    int64_t run = 0;                  // where that begins
    int64_t begin = 0, elements = 0;  // from the begin of the unit
  };
  std::vector<Piece> pieces_;
  NDArray norms_;  // of these

  // Of the pass under way.
  NDArray memory_;
  std::optional<Pass> pass_, placed_for_;
  const std::byte* placed_at_ = nullptr;
  int forward_ = 0, backward_ = 0;  // places entered last
  bool complete_ = false;           // all units have been updated and written
  std::exception_ptr failure_;      // of End()
  NDArray beside_before_;           // undefined: there is nothing beside the parameters
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_SPILLED_HOST_H_
