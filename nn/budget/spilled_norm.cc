#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/budget/spilled_host.h"
#include "tidepool/nn/budget/spilled_unit.h"

// Clipping by the norm of all gradients, which is known when the last of them is: by when most of them have left memory. They wait in
// the file, and all parameters are updated behind the pass, a unit at a time.
namespace tidepool::nn {

// As the updater has them in memory, a norm for each run of its groups, and the norm of those; of a run that goes on in another unit
// there are several, which is as good but for the last bits.
void SpilledTrainer::Host::FindPieces() {
  pieces_.clear();
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const Parameter& parameter = parameters_[k];
    const NamedParameter& named = network_.named_parameters()[k];
    const int64_t end = named.begin + named.value.NumElements();
    const std::optional<ParameterGroup> run =
        updater_.GroupOf(named.begin, end, named.begin + parameter.elements, /*exactly=*/false);
    if (!run.has_value() || run->frozen) continue;  // Apply() refuses the first
    const int64_t elements = run->end == end ? end - named.begin : parameter.elements;
    if (!pieces_.empty() && pieces_.back().unit == parameter.unit &&
        pieces_.back().run == run->begin &&
        pieces_.back().begin + pieces_.back().elements == parameter.begin) {
      pieces_.back().elements += elements;
    } else {
      pieces_.push_back({parameter.unit, run->begin, parameter.begin, elements});
    }
  }
  const auto count = static_cast<int64_t>(pieces_.size());
  if (count == 0 || (norms_.is_defined() && norms_.dim(0) == count)) return;
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  norms_ = Empty({count}, network_.dtype(), Place::Heap());
}

void SpilledTrainer::Host::ZeroPadding(const Unit& unit) {
  for (const int k : unit.parameters) {
    Parameter& parameter = parameters_[static_cast<size_t>(k)];
    const auto used = static_cast<size_t>(parameter.gradient.NumElements());
    std::memset(parameter.whole_gradient.raw_data() + used * element_, 0,
                (static_cast<size_t>(parameter.elements) - used) * element_);
  }
}

// Written from where the values were, which is theirs until this is done, and that of the gradients is not.
void SpilledTrainer::Host::KeepGradients(Unit& unit) {
  const NoGradientScope none;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    if (units_[static_cast<size_t>(piece.unit)].get() != &unit) continue;
    NDArray norm = norms_.Index(0, static_cast<int64_t>(p));
    Norm2Into(NDArray::FromStrides(unit.gradient.handle(), piece.begin, {piece.elements}, {1},
                                   network_.dtype()),
              {}, norm);
  }
  const auto bytes = static_cast<size_t>(unit.use.bytes);
  unit.value.set_there(false);
  std::memcpy(unit.value.data(), unit.gradient.data(), bytes);
  unit.writing = file_->BeginWrite(unit.value.data(), bytes);
  written_bytes_ += unit.use.bytes;
  unit.is_updated = true;
}

void SpilledTrainer::Host::UpdateByNorm() {
  const NoGradientScope none;
  NDArray norm = norms_;
  if (pieces_.size() > 1) norm = Norm2(norms_, {}, /*keep_dims=*/true);
  const auto begin_reads = [&](Unit& unit) {
    unit.reading = file_->BeginRead(unit.kept_value, unit.value.data());
    unit.reading_gradient = file_->BeginRead(unit.kept_gradient, unit.gradient.data());
    read_bytes_ += 2 * unit.use.bytes;
    StartState(unit);
  };
  // Whether what one has in memory leaves alone what the other one has.
  const int states = updater_.state_arrays();
  const auto are_apart = [&](size_t u, size_t v) {
    const std::pair<int64_t, int64_t> of_u[] = {{plan_.values[u], uses_[u].bytes},
                                                {plan_.gradients[u], uses_[u].bytes},
                                                {plan_.states[u], uses_[u].bytes * states}};
    const std::pair<int64_t, int64_t> of_v[] = {{plan_.values[v], uses_[v].bytes},
                                                {plan_.gradients[v], uses_[v].bytes},
                                                {plan_.states[v], uses_[v].bytes * states}};
    for (const auto& [begin, bytes] : of_u) {
      for (const auto& [other, other_bytes] : of_v) {
        if (begin < other + other_bytes && other < begin + bytes) return false;
      }
    }
    return true;
  };
  bool is_read = false;
  for (size_t u = units_.size(); u-- > 0;) {
    Unit& unit = *units_[u];
    if (!is_read) begin_reads(unit);
    WaitFor(unit.reading);
    WaitFor(unit.reading_gradient);
    if (states > 0 && unit.kept_state.has_value()) WaitFor(unit.reading_state);
    unit.value.set_there(true);
    is_read = u > 0 && are_apart(u, u - 1);
    if (is_read) begin_reads(*units_[u - 1]);  // beside the update and its writes
    Apply(unit, &norm);
    Written(unit);
    unit.kept_gradient.Reset();
  }
}

}  // namespace tidepool::nn
