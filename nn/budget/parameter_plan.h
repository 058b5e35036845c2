// When the parameters of a network that lie in a file are read, dropped, updated and written in a step, and where they lie
// meanwhile: all of it is known from the layers that read them, before the first step. Pure.
//
// Places are layers in the order of their calls, 0 to places - 1; the forward pass goes through them upwards, the backward pass
// downwards. A unit is parameters that come and go together. Its values are read `ahead` places before the first layer that
// reads them and dropped behind the last one; in the backward pass likewise from the other side, and once its gradients are
// final they are updated, and written while the next `ahead` places are computed. As both passes go through the same places, a
// place's width on either side is all that is to be reserved. The state of the updater comes `ahead` places before the update.
#ifndef TIDEPOOL_NN_BUDGET_PARAMETER_PLAN_H_
#define TIDEPOOL_NN_BUDGET_PARAMETER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::nn {

struct UnitUse {
  int first = 0, last = 0;  // places of the layers that read it
  int64_t bytes = 0;
};

struct ParameterPlan {
  int ahead = 0;
  // Bytes from the begin of the memory of a step, by unit; `states`: of the updater's arrays, one behind the other. Of an
  // inference pass, which has values alone.
  std::vector<int64_t> values, gradients, states, inference_values;
  int64_t bytes = 0, inference_bytes = 0;

  // The place at which a unit begins to be read in the forward pass and has been written in the backward pass.
  int Outer(const UnitUse& unit) const { return unit.first > ahead ? unit.first - ahead : 0; }
  // The place at which its values begin to be read in the backward pass, and its state.
  int Inner(const UnitUse& unit, int places) const { return Below(unit.last, places); }
  int StateFrom(const UnitUse& unit, int places) const { return Below(unit.first, places); }
  // Values stay from the forward pass to the backward pass, because they would be read again at its begin.
  bool Stays(const UnitUse& unit, int places) const { return Inner(unit, places) == places - 1; }

 private:
  int Below(int place, int places) const {
    return places - 1 - place > ahead ? place + ahead : places - 1;
  }
};

// `state_arrays`: of the updater, each as large as the values. `ahead`: at least 0. Offsets are multiples of `alignment`.
ParameterPlan PlanParameters(absl::Span<const UnitUse> units, int places, int ahead,
                             int state_arrays, int64_t alignment);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_PARAMETER_PLAN_H_
