// Of spilled_host.cc and spilled_pass.cc: parameters that come and go together.
#ifndef TIDEPOOL_NN_BUDGET_SPILLED_UNIT_H_
#define TIDEPOOL_NN_BUDGET_SPILLED_UNIT_H_

#include <vector>

#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/nn/budget/parameter_plan.h"
#include "tidepool/nn/budget/spilled_host.h"
#include "tidepool/nn/network/lent_buffer.h"

namespace tidepool::nn {

struct SpilledTrainer::Host::Unit {
  Unit(const UnitUse& its_use, int states)
      : use(its_use),
        value(static_cast<size_t>(use.bytes), LentBuffer::From::kFile),
        gradient(static_cast<size_t>(use.bytes), LentBuffer::From::kFile),
        state(static_cast<size_t>(use.bytes * states), LentBuffer::From::kFile) {}
  const UnitUse use;
  std::vector<int> parameters;
  LentBuffer value, gradient, state;
  SpilledBytes kept_value, kept_state;  // what they are; of no state: zeros
  // Of the pass under way.
  bool is_there = false, is_updated = false;
  int missing = 0;  // gradients
  SpillTransfer reading, reading_state, reading_gradient, writing, writing_state;
  SpilledBytes new_value, new_state;
  SpilledBytes kept_gradient;  // until the norm of all of them is known
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_SPILLED_UNIT_H_
