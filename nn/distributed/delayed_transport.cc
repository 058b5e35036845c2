#include "tidepool/nn/distributed/delayed_transport.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

DelayedTransport::DelayedTransport(std::unique_ptr<Transport> below, const LinkCost& delay)
    : below_(std::move(below)), delay_(delay) {
  for (const double seconds : {delay.alpha, delay.beta}) {
    if (seconds >= 0 && std::isfinite(seconds)) continue;
    ThrowInvalidArgument(absl::StrCat("distributed: messages are delayed by ", delay.alpha,
                                      " s and ", delay.beta,
                                      " s a byte, expected finite numbers from 0"));
  }
}

bool DelayedTransport::Run(const Exchange& exchange) {
  if (exchange.to >= 0) {
    const double delay = delay_.alpha + delay_.beta * static_cast<double>(exchange.out_bytes);
    seconds_ += delay;
    if (!Sleep(delay)) return false;
  }
  return below_->Run(exchange);
}

bool DelayedTransport::Sleep(double seconds) {
  using Clock = std::chrono::steady_clock;
  owed_ += seconds;
  std::unique_lock<std::mutex> lock(mutex_);
  if (interrupted_) return false;
  if (owed_ <= 0) return true;
  const Clock::time_point begin = Clock::now();
  const auto until =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(owed_));
  changed_.wait_until(lock, until, [&] { return interrupted_; });
  owed_ -= std::chrono::duration<double>(Clock::now() - begin).count();
  // A process that was stopped for long does not make up for it.
  owed_ = std::max(owed_, -1e-3);
  return !interrupted_;
}

void DelayedTransport::Interrupt() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    interrupted_ = true;
  }
  changed_.notify_all();
  below_->Interrupt();
}

}  // namespace tidepool::nn
