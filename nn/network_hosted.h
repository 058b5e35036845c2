// Of network*.cc alone: a pass over parameters that may be a host's.
#ifndef TIDEPOOL_NN_NETWORK_HOSTED_H_
#define TIDEPOOL_NN_NETWORK_HOSTED_H_

#include <vector>

#include "absl/types/span.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/parameter_host.h"

namespace tidepool::nn {

class Network::HostedPass {
 public:
  // Null: of parameters that are given. Throws kFailedPrecondition where they are hosted by nobody.
  HostedPass(const Network* network, ParameterHost::Pass pass);
  ~HostedPass() {
    if (host_ != nullptr) host_->End();
  }
  HostedPass(const HostedPass&) = delete;
  HostedPass& operator=(const HostedPass&) = delete;

  ParameterHost* host() const { return host_; }               // null: they are the network's own
  absl::Span<const NDArray> views() const { return views_; }  // in the body's order

 private:
  ParameterHost* host_ = nullptr;
  std::vector<NDArray> placed_;
  absl::Span<const NDArray> views_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_HOSTED_H_
