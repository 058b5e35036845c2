#include "tidepool/nn/distributed/heartbeat.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/heartbeat_watch.h"

namespace tidepool::nn {

Heartbeat::Heartbeat(Communicator& communicator, HeartbeatConfig config)
    : communicator_(communicator) {
  if (config.interval.count() < 1 || config.limit < 2 * config.interval ||
      config.patience.count() < 1) {
    ThrowInvalidArgument(
        absl::StrCat("heartbeat: an interval of ", config.interval.count(), " ms, a limit of ",
                     config.limit.count(), " ms and a patience of ", config.patience.count(),
                     " ms, expected at least 1 ms, twice that, and at least 1 ms"));
  }
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
