// Network: where its parameters lie, and which of them are trained.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/shape_only_array.h"
#include "tidepool/nn/name_pattern.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

// Arrays in the flat buffers start at cache lines.
constexpr int64_t kParameterAlignment = 16;

NDArray ViewOf(const NDArray& flat, int64_t offset, const Shape& shape) {
  return flat.Slice(0, offset, offset + shape.NumElements()).Reshape(shape);
}

}  // namespace

// Trained ones first, then what layers keep beside their parameters and a step moves as well, then what stays: what is frozen, and what
// layers keep that run as in inference because of it. The whole is as long whatever is frozen.
struct Network::Layout {
  struct Views;
  std::vector<bool> frozen;      // by place among the body's; empty: none is
  std::vector<int> in_body;      // in the order of the flat array
  std::vector<int64_t> offsets;  // of those
  size_t trained_arrays = 0;
  int64_t trained = 0, moved = 0,
          flat = 0;  // elements, with padding; those before `moved` change in a step
  int64_t parameter_count = 0;
};

Network::Layout Network::LayoutOf(absl::Span<const std::string> patterns) const {
  const std::vector<NamedSpec>& specs = body_->parameters();
  Layout layout;
  if (!patterns.empty()) {
    std::vector<std::string> names;
    for (const NamedSpec& spec : specs) names.push_back(spec.name);
    layout.frozen = MatchNames(patterns, names, absl::StrCat("network [", name(), "]: frozen"));
  }
  enum Part { kTrained, kBeside, kFrozen };
  const std::vector<bool> moved = body_->MovedBeside(layout.frozen);
  const auto part_of = [&](size_t i) {
    if (!specs[i].spec.is_trained) return moved[i] ? kBeside : kFrozen;
    return layout.frozen.empty() || !layout.frozen[i] ? kTrained : kFrozen;
  };
  for (const Part part : {kTrained, kBeside, kFrozen}) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (part_of(i) != part) continue;
      const int64_t count = specs[i].spec.shape.NumElements();
      layout.in_body.push_back(static_cast<int>(i));
      layout.offsets.push_back(layout.flat);
      layout.flat += (count + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
      if (part != kTrained) continue;
      layout.parameter_count += count;
      ++layout.trained_arrays;
    }
    if (part == kTrained) layout.trained = layout.flat;
    if (part != kFrozen) layout.moved = layout.flat;
  }
  if (!patterns.empty() && layout.trained_arrays == 0) {
    ThrowInvalidArgument(absl::StrCat("network [", name(),
                                      "]: frozen: nothing is left to train of ", specs.size(),
                                      " parameters, expected at least one"));
  }
  return layout;
}

// What a network knows of its arrays by a layout: made first, and taken by a call that cannot fail.
struct Network::Layout::Views {
  Views(const Network& network, Layout layout_of_them, const NDArray& arrays,
        NDArray gradients_of_them);
  void TakeInto(Network& network) && noexcept;

  Layout layout;
  NDArray parameters, beside, gradients;
  std::vector<NamedParameter> named;
  std::vector<NDArray> by_parameter, by_gradient;
};

// Of `arrays`; values are not looked at.
Network::Layout::Views::Views(const Network& network, Layout layout_of_them, const NDArray& arrays,
                              NDArray gradients_of_them)
    : layout(std::move(layout_of_them)), gradients(std::move(gradients_of_them)) {
  const std::vector<NamedSpec>& specs = network.body_->parameters();
  parameters = layout.trained == layout.flat ? arrays : arrays.Slice(0, 0, layout.trained);
  if (layout.trained != layout.moved) beside = arrays.Slice(0, layout.trained, layout.moved);
  by_parameter.resize(specs.size());
  for (size_t k = 0; k < layout.in_body.size(); ++k) {
    const auto i = static_cast<size_t>(layout.in_body[k]);
    const ParameterSpec& spec = specs[i].spec;
    const bool is_trained = k < layout.trained_arrays;
    by_parameter[i] = ViewOf(arrays, layout.offsets[k], spec.shape);
    named.push_back({.name = specs[i].name,
                     .value = by_parameter[i],
                     .is_trained = is_trained,
                     .is_frozen = !layout.frozen.empty() && layout.frozen[i],
                     .decays = spec.decays,
                     .begin = layout.offsets[k]});
    if (is_trained) by_gradient.push_back(ViewOf(gradients, layout.offsets[k], spec.shape));
  }
}

void Network::Layout::Views::TakeInto(Network& network) && noexcept {
  network.in_body_ = std::move(layout.in_body);
  network.parameter_offsets_ = std::move(layout.offsets);
  network.frozen_ = std::move(layout.frozen);
  network.parameter_count_ = layout.parameter_count;
  network.trained_elements_ = layout.trained;
  network.parameters_ = std::move(parameters);
  network.beside_ = std::move(beside);
  network.gradients_ = std::move(gradients);
  network.named_ = std::move(named);
  network.parameter_views_ = std::move(by_parameter);
  network.gradient_views_ = std::move(by_gradient);
}

void Network::Take(Layout layout, NDArray gradients) {
  Layout::Views(*this, std::move(layout), arrays_, std::move(gradients)).TakeInto(*this);
}

// Trained ones are somebody else's: shapes stand for them, in named_ and in the views alike.
void Network::TakeUntrained(Layout layout, NDArray untrained) {
  const std::vector<NamedSpec>& specs = body_->parameters();
  in_body_ = std::move(layout.in_body);
  parameter_offsets_ = std::move(layout.offsets);
  frozen_ = std::move(layout.frozen);
  parameter_count_ = layout.parameter_count;
  trained_elements_ = layout.trained;
  arrays_ = parameters_ = gradients_ = NDArray();
  untrained_ = std::move(untrained);
  beside_ = layout.trained == layout.moved ? NDArray()
                                           : untrained_.Slice(0, 0, layout.moved - layout.trained);
  named_.clear();
  gradient_views_.assign(layout.trained_arrays, NDArray());
  parameter_views_.resize(in_body_.size());
  for (size_t k = 0; k < in_body_.size(); ++k) {
    const auto i = static_cast<size_t>(in_body_[k]);
    const ParameterSpec& spec = specs[i].spec;
    const bool is_trained = k < layout.trained_arrays;
    parameter_views_[i] =
        is_trained ? ShapeOnlyArray(spec.shape, options_.dtype, options_.device)
                   : ViewOf(untrained_, parameter_offsets_[k] - layout.trained, spec.shape);
    named_.push_back({.name = specs[i].name,
                      .value = parameter_views_[i],
                      .is_trained = is_trained,
                      .is_frozen = !frozen_.empty() && frozen_[i],
                      .decays = spec.decays,
                      .begin = parameter_offsets_[k]});
  }
}

void Network::ReleaseTrained() {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const NoGradientScope constants;
  const MemoryOwnerScope owner("network");
  NDArray untrained;
  if (trained_elements_ < arrays_.NumElements()) {
    untrained = arrays_.Slice(0, trained_elements_, arrays_.NumElements())
                    .CopyTo(Place::On(options_.device));
  }
  tape_.reset();
  TakeUntrained(LayoutOf(options_.frozen), std::move(untrained));
}

void Network::MakeArrays(const Network* shared) {
  Layout layout = LayoutOf(options_.frozen);
  const MemoryOwnerScope owner("network");
  if (options_.hosted_parameters) {
    CheckCanBeHosted();
    NDArray untrained;
    if (layout.trained < layout.flat)
      untrained = Zeros({layout.flat - layout.trained}, options_.dtype, Place::On(options_.device));
    TakeUntrained(std::move(layout), std::move(untrained));
    DrawParameters(gradient_views_.size());
    return;
  }
  NDArray gradients;
  try {
    arrays_ = shared != nullptr ? shared->arrays_
                                : Zeros({layout.flat}, options_.dtype, Place::On(options_.device));
    gradients = Zeros({layout.trained}, options_.dtype,
                      Place::On(options_.device, MemoryKind::kGradientStandard));
  } catch (Error& error) {
    const NamedSpec& largest =
        *std::max_element(body_->parameters().begin(), body_->parameters().end(),
                          [](const NamedSpec& a, const NamedSpec& b) {
                            return a.spec.shape.NumElements() < b.spec.shape.NumElements();
                          });
    error.AddContext(absl::StrCat("network [", name(), "]: ", layout.flat,
                                  " elements of parameters, of which \"", largest.name, "\", ",
                                  largest.spec.shape.ToString(), ", is the largest"));
    throw;
  }
  Take(std::move(layout), std::move(gradients));
  if (shared != nullptr) {
    source_layout_ = shared->layout_version_;
    seen_layout_ = *source_layout_;
    if (beside_.is_defined()) TakeBeside(shared->beside_.CopyTo(Place::On(options_.device)));
    return;
  }
  DrawParameters(0);
}

void Network::DrawParameters(size_t first) {
  for (size_t k = first; k < in_body_.size(); ++k) {
    const auto i = static_cast<size_t>(in_body_[k]);
    const ParameterSpec& spec = body_->parameters()[i].spec;
    if (!options_.draw_parameters || spec.StartsAtZero()) continue;
    try {
      CopyInto(DrawInitial(spec, options_.dtype, options_.seed, i), parameter_views_[i]);
    } catch (Error& error) {
      error.AddContext(
          absl::StrCat("network [", name(), "]: \"", body_->parameters()[i].name, "\""));
      throw;
    }
  }
}

// What layers keep beside their parameters lies in an array of its own.
void Network::TakeBeside(NDArray beside) {
  beside_ = std::move(beside);
  const int64_t begin = parameters_.NumElements(), end = begin + beside_.NumElements();
  for (size_t k = 0; k < named_.size(); ++k) {
    NamedParameter& named = named_[k];
    if (named.begin < begin || named.begin >= end) continue;
    named.value = ViewOf(beside_, named.begin - begin, named.value.shape());
    parameter_views_[static_cast<size_t>(in_body_[k])] = named.value;
  }
}

Network Network::NewReplica(ReplicaParameters parameters, uint64_t seed) const {
  CheckWhole("replica");
  if (training_workspace_->is_open() || inference_workspace_->is_open()) {
    ThrowFailedPrecondition(
        absl::StrCat("network [", name(),
                     "]: a replica is made while a workspace of it is open, expected closed"));
  }
  CheckOwn("replica").arrays_.CheckAlive("replica", "parameters");
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const NoGradientScope constants;
  NetworkOptions options = options_;
  options.seed = seed;
  options.draw_parameters = false;
  const bool shares = parameters == ReplicaParameters::kShared;
  Network replica(body_, options, shares ? this : nullptr);
  if (!shares) CopyInto(arrays_, replica.arrays_);
  replica.loss_ = loss_;
  replica.step_ = step_;
  return replica;
}

void Network::SetFrozen(absl::Span<const std::string> patterns) {
  CheckOwn("set_frozen");
  if (source_layout_ != nullptr) {
    ThrowFailedPrecondition(absl::StrCat("network [", name(),
                                         "]: frozen: its parameters are those of the network it is "
                                         "a replica of, expected that one's call"));
  }
  if (training_workspace_->is_open() || inference_workspace_->is_open()) {
    ThrowFailedPrecondition(
        absl::StrCat("network [", name(),
                     "]: parameters are frozen while a workspace of it is open, expected closed"));
  }
  Layout layout = LayoutOf(patterns);
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const NoGradientScope constants;
  const MemoryOwnerScope owner("network");
  // Values move within the array that managers and replicas know, when nothing else can fail any more.
  NDArray moved = Zeros(arrays_.shape(), options_.dtype, Place::On(options_.device));
  NDArray gradients = Zeros({layout.trained}, options_.dtype,
                            Place::On(options_.device, MemoryKind::kGradientStandard));
  std::vector<std::string> frozen(patterns.begin(), patterns.end());
  {
    Layout::Views there(*this, layout, moved, gradients);
    for (size_t i = 0; i < parameter_views_.size(); ++i)
      CopyInto(parameter_views_[i], there.by_parameter[i]);
  }
  Layout::Views views(*this, std::move(layout), arrays_, std::move(gradients));
  CopyInto(moved, arrays_);
  tape_.reset();
  std::move(views).TakeInto(*this);
  options_.frozen = std::move(frozen);
  ++*layout_version_;
}

std::vector<NDArray> Network::ViewsOf(const NDArray& flat) const {
  std::vector<NDArray> views(in_body_.size());
  for (size_t k = 0; k < in_body_.size(); ++k) {
    const auto i = static_cast<size_t>(in_body_[k]);
    views[i] = ViewOf(flat, parameter_offsets_[k], body_->parameters()[i].spec.shape);
  }
  return views;
}

const std::vector<NamedParameter>& Network::named_parameters() const {
  return CheckWhole("named_parameters").named_;
}

NDArray& Network::parameters() {
  CheckOwn("parameters");
  return parameters_;
}

}  // namespace tidepool::nn
