// Network: parameters that are somebody else's.
#include "tidepool/nn/network_hosted.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/initializer.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {

Network::HostedPass::HostedPass(const Network* network, ParameterHost::Pass pass) {
  if (network == nullptr) return;
  views_ = network->parameter_views_;
  if (!network->is_hosted()) return;
  if (network->host_ == nullptr) network->ThrowHosted("pass");
  placed_ = network->parameter_views_;
  network->host_->Begin(pass);  // nothing fails behind it
  host_ = network->host_;
  for (size_t k = 0; k < network->gradient_views_.size(); ++k) {
    placed_[static_cast<size_t>(network->in_body_[k])] = host_->value(static_cast<int>(k));
  }
  views_ = placed_;
}

void Network::ThrowHosted(const char* operation) const {
  ThrowFailedPrecondition(absl::StrCat(
      "network [", name(), "]: ", operation,
      ": its parameters are hosted (in parts on the ranks of a job, say)",
      host_ == nullptr ? ", and nobody hosts them now" : "",
      ", expected parameters of its own, or what their host offers for this (DistributedTrainer)"));
}

void Network::CheckCanBeHosted() const {
  CheckWhole("host_parameters");
  const auto refuse = [&](const std::string& found, const char* expected) {
    ThrowUnimplemented(absl::StrCat("network [", name(), "]: hosted parameters of ", found,
                                    ", expected ", expected));
  };
  if (host_ != nullptr) {
    ThrowFailedPrecondition(absl::StrCat(
        "network [", name(),
        "]: its parameters are given to a host while another one has them (a SpilledTrainer, or a "
        "trainer of a job), expected one at a time"));
  }
  if (body_->layer_parameters().empty()) {
    refuse("a program (Block), whose layers are known when it runs",
           "a network of a configuration");
  }
  if (options_.device != Host())
    refuse(absl::StrCat("a network on ", DeviceName(options_.device)), "one on the host");
  if (options_.compute_type.has_value()) {
    refuse(absl::StrCat("layers that compute by ", DTypeName(*options_.compute_type),
                        ", whose converted parameters a step keeps"),
           "layers that compute by the parameters' type");
  }
}

void Network::HostParameters(ParameterHost* host) {
  CheckWhole("host_parameters");
  if (host != nullptr) CheckCanBeHosted();
  if (!is_hosted()) {
    if (source_layout_ != nullptr || training_workspace_->is_open() ||
        inference_workspace_->is_open()) {
      ThrowFailedPrecondition(
          absl::StrCat("network [", name(), "]: its parameters are given to a host ",
                       source_layout_ != nullptr ? "though they are another network's"
                                                 : "while a workspace of it is open",
                       ", expected parameters of its own and closed workspaces"));
    }
    ReleaseTrained();
    options_.hosted_parameters = true;
  }
  host_ = host;
}

NDArray Network::InitialValue(int parameter) const {
  CheckWhole("initial_value");
  if (parameter < 0 || static_cast<size_t>(parameter) >= in_body_.size()) {
    ThrowInvalidArgument(
        absl::StrCat("network: parameter ", parameter, ", expected 0 to ", in_body_.size() - 1));
  }
  const auto i = static_cast<size_t>(in_body_[static_cast<size_t>(parameter)]);
  const ParameterSpec& spec = body_->parameters()[i].spec;
  const ScopeOutOfWorkspaces heap;
  if (!options_.draw_parameters || spec.StartsAtZero())
    return Zeros(spec.shape, options_.dtype, Place::Heap());
  return DrawInitial(spec, options_.dtype, options_.seed, i);
}

std::vector<LayerParameters> Network::trained_by_layer() const {
  CheckWhole("trained_by_layer");
  std::vector<int> number(in_body_.size(), -1);
  for (size_t k = 0; k < gradient_views_.size(); ++k)
    number[static_cast<size_t>(in_body_[k])] = static_cast<int>(k);
  std::vector<LayerParameters> layers = body_->layer_parameters();
  for (LayerParameters& layer : layers) {
    std::vector<int> trained;
    for (const int parameter : layer.parameters) {
      const int k = number[static_cast<size_t>(parameter)];
      if (k >= 0) trained.push_back(k);
    }
    layer.parameters = std::move(trained);
  }
  return layers;
}

}  // namespace tidepool::nn
