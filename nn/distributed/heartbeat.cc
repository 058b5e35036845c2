#include "tidepool/nn/distributed/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/heartbeat_watch.h"

namespace tidepool::nn {
namespace {

// "Never" is written as the largest number there is, which a clock of nanoseconds does not hold.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365 * 100);

}  // namespace

Heartbeat::Heartbeat(Communicator& communicator, HeartbeatConfig config)
    : communicator_(communicator) {
  if (config.interval.count() < 1 || config.limit / 2 < config.interval ||
      config.patience.count() < 1) {
    ThrowInvalidArgument(
        absl::StrCat("heartbeat: an interval of ", config.interval.count(), " ms, a limit of ",
                     config.limit.count(), " ms and a patience of ", config.patience.count(),
                     " ms, expected at least 1 ms, twice that, and at least 1 ms"));
  }
  for (std::chrono::milliseconds* time : {&config.interval, &config.limit, &config.patience})
    *time = std::min(*time, kNever);
  if (communicator.size() > 1) watch_ = std::make_unique<Watch>(communicator, std::move(config));
}

Heartbeat::~Heartbeat() = default;

void Heartbeat::Guard(absl::FunctionRef<void()> body) {
  try {
    body();
  } catch (const Error& error) {
    // Another rank's fault, as this one was told by a collective: that one says what it was.
    if (error.code() == absl::StatusCode::kAborted && watch_ != nullptr) watch_->AwaitVerdict();
    Fail(error);
    throw;
  } catch (const std::exception& error) {
    Fail(Error(absl::StatusCode::kInternal, error.what()));
    throw;
  } catch (...) {
    Fail(Error(absl::StatusCode::kInternal, "an exception of an unknown type"));
    throw;
  }
}

void Heartbeat::Fail(const Error& error) {
  if (watch_ != nullptr) watch_->Fail(error.message());
  communicator_.Abort(error);
}

std::string Heartbeat::verdict() const { return watch_ != nullptr ? watch_->verdict() : ""; }

}  // namespace tidepool::nn
