#include "tidepool/nn/parallel/waiting_request.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"

namespace tidepool::nn {
namespace {

bool IsDefined(const Arrays& arrays, size_t i) {
  return i < arrays.size() && arrays[i].is_defined();
}

// In the current place.
void ComputeTogether(const Network& network, absl::Span<WaitingRequest* const> batch) {
  Network::RunOptions options;
  Arrays inputs = *batch[0]->inputs;
  options.masks = *batch[0]->masks;
  if (batch.size() > 1) {
    std::vector<NDArray> parts(batch.size());
    const auto join = [&](const Arrays* WaitingRequest::*arrays, size_t i) {
      for (size_t k = 0; k < batch.size(); ++k) parts[k] = (*(batch[k]->*arrays))[i];
      return Concat(parts);
    };
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = join(&WaitingRequest::inputs, i);
    for (size_t i = 0; i < options.masks.size(); ++i) {
      if (options.masks[i].is_defined()) options.masks[i] = join(&WaitingRequest::masks, i);
    }
  }
  const Arrays outputs = network.Run(std::move(inputs), options);
  for (size_t o = 0; o < outputs.size(); ++o) {
    int64_t row = 0;
    for (WaitingRequest* const waiting : batch) {
      const NDArray rows = outputs[o].Slice(0, row, row + waiting->examples);
      row += waiting->examples;
      NDArray& result = (*waiting->outputs)[o];
      CopyInto(rows.dtype() == result.dtype() ? rows : Cast(rows, result.dtype()), result);
    }
  }
}

void ComputeIn(const BatchPlace& place, const Network& network,
               absl::Span<WaitingRequest* const> batch) {
  if (place.manager == nullptr) {
    const HandlesOwnScope handles;
    const PooledScope scope(place.pool);
    return ComputeTogether(network, batch);
  }
  const WorkspaceLease lease = place.pool.Lease();
  NDManager manager = place.manager->NewCycleManager("batch", *lease);
  manager.SetBudget(place.budget_bytes);
  const ManagerScope scope(manager);
  ComputeTogether(network, batch);
}

// The services that a thread computes requests of: a layer may call another one's.
struct Computing {
  explicit Computing(const void* its_service) : service(its_service), outer(innermost) {
    innermost = this;
  }
  ~Computing() { innermost = outer; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

  const void* const service;
  const Computing* const outer;
  static thread_local const Computing* innermost;
};
thread_local const Computing* Computing::innermost = nullptr;

}  // namespace

void WaitingQueue::Add(WaitingRequest& request) {
  (last_ != nullptr ? last_->next : first_) = &request;
  last_ = &request;
}

WaitingRequest* WaitingQueue::Before(const WaitingRequest& request) const {
  WaitingRequest* before = nullptr;
  for (WaitingRequest* at = first_; at != &request; at = at->next) before = at;
  return before;
}

void WaitingQueue::RemoveBehind(WaitingRequest* before) {
  WaitingRequest*& link = before != nullptr ? before->next : first_;
  WaitingRequest* const removed = link;
  link = removed->next;
  if (last_ == removed) last_ = before;
  removed->next = nullptr;
}

WaitingRequest::Deadline DeadlineOf(const std::optional<std::chrono::nanoseconds>& wanted) {
  using Clock = WaitingRequest::Clock;
  if (!wanted.has_value()) return std::nullopt;
  const Clock::time_point now = Clock::now();
  if (*wanted > Clock::time_point::max() - now) return std::nullopt;
  return now + *wanted;
}

void CheckComputesNothingOf(const void* service, const std::string& name) {
  for (const Computing* at = Computing::innermost; at != nullptr; at = at->outer) {
    if (at->service != service) continue;
    ThrowFailedPrecondition(absl::StrCat(
        name, ": Shutdown by a thread that computes one of its requests, expected another thread"));
  }
}

bool FitTogether(const WaitingRequest& a, const WaitingRequest& b) {
  const auto fit = [](const NDArray& x, const NDArray& y) {
    return x.dtype() == y.dtype() && x.device() == y.device() &&
           x.shape().span().subspan(1) == y.shape().span().subspan(1);
  };
  const Arrays &x = *a.inputs, &y = *b.inputs;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!fit(x[i], y[i])) return false;
    const bool masked = IsDefined(*a.masks, i);
    if (masked != IsDefined(*b.masks, i)) return false;
    if (masked && !fit((*a.masks)[i], (*b.masks)[i])) return false;
  }
  return true;
}

void ComputeRequests(const Network& network, const BatchPlace& place,
                     absl::Span<WaitingRequest* const> batch) {
  const Computing computing(place.service);
  try {
    ComputeIn(place, network, batch);
    return;
  } catch (...) {
    if (batch.size() == 1) {
      batch[0]->error = std::current_exception();
      return;
    }
  }
  for (size_t i = 0; i < batch.size(); ++i) ComputeRequests(network, place, batch.subspan(i, 1));
}

}  // namespace tidepool::nn
