#include "tidepool/nn/budget/spilled_host.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/nn/budget/spilled_unit.h"

// A pass over parameters in a file.
namespace tidepool::nn {
namespace {

constexpr char kName[] = "spilled trainer";

}  // namespace

// Views are made anew where the pass's memory, or its plan, is another one than the last pass's.
void SpilledTrainer::Host::PlaceViews() {
  if (placed_for_ == pass_ && placed_at_ == memory_.raw_data()) return;
  const bool training = *pass_ == Pass::kTraining, tail = memory_.buffer()->readable_tail;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    unit.value.set_data(
        memory_.raw_data() + (training ? plan_.values[u] : plan_.inference_values[u]), tail);
    if (!training) continue;
    unit.gradient.set_data(memory_.raw_data() + plan_.gradients[u], tail);
    unit.state.set_data(memory_.raw_data() + plan_.states[u], tail);
  }
  for (size_t k = 0; k < parameters_.size(); ++k) {
    Parameter& parameter = parameters_[k];
    const Unit& unit = *units_[static_cast<size_t>(parameter.unit)];
    const Shape& shape = network_.named_parameters()[k].value.shape();
    std::array<int64_t, kMaxRank> strides;
    shape.SetDenseStrides(strides.data());
    const auto view = [&](const LentBuffer& of, int64_t begin) {
      return NDArray::FromStrides(
          of.handle(), begin, shape,
          absl::MakeConstSpan(strides.data(), static_cast<size_t>(shape.rank())), network_.dtype());
    };
    const auto whole = [&](const LentBuffer& of, int64_t begin) {
      return NDArray::FromStrides(of.handle(), begin, {parameter.elements}, {1}, network_.dtype());
    };
    parameter.value = view(unit.value, parameter.begin);
    if (!training) continue;
    parameter.gradient = view(unit.gradient, parameter.begin);
    parameter.whole_value = whole(unit.value, parameter.begin);
    parameter.whole_gradient = whole(unit.gradient, parameter.begin);
    const int64_t elements = unit.use.bytes / static_cast<int64_t>(element_);
    if (updater_.state_arrays() > 0) parameter.first = whole(unit.state, parameter.begin);
    if (updater_.state_arrays() > 1)
      parameter.second = whole(unit.state, elements + parameter.begin);
  }
  placed_for_ = pass_;
  placed_at_ = memory_.raw_data();
}

void SpilledTrainer::Host::Begin(Pass pass) {
  if (pass_.has_value()) {
    ThrowFailedPrecondition(absl::StrCat(kName, ": a pass over network [", network_.name(),
                                         "] begins while another one is under way"));
  }
  const int64_t bytes = pass == Pass::kTraining ? plan_.bytes : plan_.inference_bytes;
  const auto element = static_cast<int64_t>(element_);
  memory_ = Empty({(bytes + element - 1) / element}, network_.dtype(), Place::Scratch());
  pass_ = pass;
  PlaceViews();
  if (clips_all_ && pass == Pass::kTraining) FindPieces();
  Drop();
  forward_ = -1;
  backward_ = places_;
  for (const auto& unit : units_) {
    unit->missing = static_cast<int>(unit->parameters.size());
    unit->is_there = unit->is_updated = false;
    unit->value.set_there(true);  // to be watched by a tape; none is read before its layer
    unit->gradient.set_there(pass == Pass::kTraining);
    unit->state.set_there(pass == Pass::kTraining);
  }
}

void SpilledTrainer::Host::StartRead(Unit& unit) {
  if (unit.is_there) return;
  unit.reading = file_->BeginRead(unit.kept_value, unit.value.data());
  read_bytes_ += unit.use.bytes;
}

void SpilledTrainer::Host::StartState(Unit& unit) {
  const size_t bytes =
      static_cast<size_t>(unit.use.bytes) * static_cast<size_t>(updater_.state_arrays());
  if (bytes == 0) return;
  if (!unit.kept_state.has_value()) {
    std::memset(unit.state.data(), 0, bytes);
    return;
  }
  unit.reading_state = file_->BeginRead(unit.kept_state, unit.state.data());
  read_bytes_ += static_cast<int64_t>(bytes);
}

SpilledBytes SpilledTrainer::Host::WaitFor(SpillTransfer& transfer) {
  if (transfer.is_done()) return transfer.Wait();
  const absl::Time begin = absl::Now();
  SpilledBytes bytes = transfer.Wait();
  stall_seconds_ += absl::ToDoubleSeconds(absl::Now() - begin);
  return bytes;
}

void SpilledTrainer::Host::ForwardTo(int place) {
  for (; forward_ < place; ++forward_) {
    const int next = forward_ + 1;
    const auto drop = [](Unit& unit) {
      unit.value.set_there(false);
      unit.is_there = false;
    };
    if (next == 0) {
      for (const auto& unit : units_) drop(*unit);
    } else {
      for (Unit* const unit : At(next - 1).last) {
        if (*pass_ != Pass::kTraining || !plan_.Stays(unit->use, places_)) drop(*unit);
      }
    }
    for (Unit* const unit : At(next).outer) StartRead(*unit);
    for (Unit* const unit : At(next).first) {
      WaitFor(unit->reading);
      unit->value.set_there(true);
      unit->is_there = true;
    }
  }
}

void SpilledTrainer::Host::BackwardTo(int place) {
  if (forward_ < places_ - 1) ForwardTo(places_ - 1);
  for (; backward_ > place; --backward_) {
    const int next = backward_ - 1;
    if (next + 1 < places_) {
      for (Unit* const unit : At(next + 1).first) Update(*unit);
      for (Unit* const unit : At(next + 1).outer) Written(*unit);
    }
    if (next < 0) continue;
    for (Unit* const unit : At(next).inner) StartRead(*unit);
    for (Unit* const unit : At(next).state) {
      if (!clips_all_) StartState(*unit);
    }
    for (Unit* const unit : At(next).last) {
      if (unit->is_there) continue;
      WaitFor(unit->reading);
      unit->value.set_there(true);
      unit->is_there = true;
    }
  }
}

void SpilledTrainer::Host::Update(Unit& unit) {
  if (unit.missing > 0) {
    const NamedParameter& parameter =
        network_.named_parameters()[static_cast<size_t>(unit.parameters.front())];
    ThrowUnimplemented(absl::StrCat(kName, ": gradients of \"", parameter.name,
                                    "\" and what comes with it are not final behind its layers, "
                                    "expected layers without segments "
                                    "(Recomputed) where parameters are in a file"));
  }
  ZeroPadding(unit);
  if (clips_all_) return KeepGradients(unit);
  if (updater_.state_arrays() > 0 && unit.kept_state.has_value()) WaitFor(unit.reading_state);
  Apply(unit, nullptr);
}

void SpilledTrainer::Host::Apply(Unit& unit, const NDArray* norm) {
  {
    const NoGradientScope none;
    for (const int k : unit.parameters) {
      Parameter& parameter = parameters_[static_cast<size_t>(k)];
      const NamedParameter& named = network_.named_parameters()[static_cast<size_t>(k)];
      const int64_t begin = named.begin, end = begin + parameter.gradient.NumElements();
      const bool by_norm = updater_.config().clipping.kind == ClippingKind::kNormOfEach;
      const std::optional<ParameterGroup> as =
          updater_.GroupOf(begin, end, begin + parameter.elements, by_norm);
      if (!as.has_value()) {
        ThrowUnimplemented(absl::StrCat(
            kName, ": groups of the updater begin or end within \"", named.name, "\", elements [",
            begin, ", ", end, ")", by_norm ? ", or have it with others" : "",
            ", expected groups of whole parameters", by_norm ? ", each by itself" : ""));
      }
      // A norm is of the group's elements, with what pads the parameter or without.
      const int64_t count = by_norm && as->end == end ? end - begin : parameter.elements;
      const auto part = [&](const NDArray& whole) {
        return whole.is_defined() ? whole.Slice(0, 0, count) : whole;
      };
      NDArray value = part(parameter.whole_value), first = part(parameter.first),
              second = part(parameter.second);
      updater_.ApplyTo(*as, part(parameter.whole_gradient), value, &first, &second, norm);
    }
  }
  unit.value.set_there(false);
  const int states = updater_.state_arrays();
  const auto bytes = static_cast<size_t>(unit.use.bytes);
  unit.writing = file_->BeginWrite(unit.value.data(), bytes);
  written_bytes_ += unit.use.bytes;
  if (states > 0) {
    unit.writing_state = file_->BeginWrite(unit.state.data(), bytes * static_cast<size_t>(states));
    written_bytes_ += unit.use.bytes * states;
  }
  unit.is_updated = true;
}

void SpilledTrainer::Host::Written(Unit& unit) {
  if (clips_all_ && !unit.kept_gradient.has_value()) {
    unit.kept_gradient = WaitFor(unit.writing);
    return;
  }
  unit.new_value = WaitFor(unit.writing);
  if (updater_.state_arrays() > 0) unit.new_state = WaitFor(unit.writing_state);
}

void SpilledTrainer::Host::EnterForward(int layer) {
  ForwardTo(place_of_layer_[static_cast<size_t>(layer)]);
}

void SpilledTrainer::Host::EnterBackward(int layer) {
  BackwardTo(place_of_layer_[static_cast<size_t>(layer)]);
}

void SpilledTrainer::Host::GradientIsFinal(int k) {
  --units_[static_cast<size_t>(Views(k).unit)]->missing;
}

void SpilledTrainer::Host::End() noexcept {
  // A pass that failed has gradients that are not final, and ends where it is.
  const bool is_whole =
      *pass_ == Pass::kTraining && std::all_of(units_.begin(), units_.end(),
                                               [](const auto& unit) { return unit->missing == 0; });
  if (is_whole) {
    try {
      BackwardTo(-1);
      if (clips_all_) UpdateByNorm();
      complete_ = true;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  for (const auto& unit : units_) {
    // Nobody touches the memory any more.
    for (SpillTransfer* const transfer :
         {&unit->reading, &unit->reading_state, &unit->reading_gradient, &unit->writing,
          &unit->writing_state}) {
      *transfer = SpillTransfer();
    }
    unit->value.set_there(false);
    unit->gradient.set_there(false);
    unit->state.set_there(false);
  }
  memory_ = NDArray();
  pass_.reset();
}

}  // namespace tidepool::nn
