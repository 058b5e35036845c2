#include "tidepool/nn/distributed/start_limit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// A clock of nanoseconds does not hold the largest number of milliseconds there is.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365 * 100);

}  // namespace

StartLimit::StartLimit(std::chrono::milliseconds limit) {
  if (limit.count() < 1) {
    ThrowInvalidArgument(
        absl::StrCat("start limit: ", limit.count(), " ms, expected at least 1 ms"));
  }
  try {
    thread_ = std::thread([this, limit] { Wait(std::min(limit, kNever)); });
  } catch (const std::system_error& error) {
    ThrowResourceExhausted(
        absl::StrCat("start limit: the system has no thread: ", error.code().message()));
  }
}

StartLimit::~StartLimit() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartLimit::Wait(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (changed_.wait_for(lock, limit, [&] { return has_started_; })) return;
  const std::string text = absl::StrCat(
      "distributed: the ranks have not found each other within ",
      static_cast<double>(limit.count()) / 1000,
      " s: one is stopped, hangs, or its machine is gone, before it has come; this process ends\n");
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  // Another thread is in a call that does not return.
  _exit(1);
}

}  // namespace tidepool::nn
