// TIDEPOOL_RECORD: from before main() to after it.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tidepool/memory/recording/record_requests.h"

namespace tidepool {
namespace {

[[maybe_unused]] const bool records = [] {
  // Not of a program with more rights than its user.
  const char* const path = secure_getenv("TIDEPOOL_RECORD");
  if (path == nullptr || path[0] == '\0') return false;
  try {
    StartRecording(path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tidepool: TIDEPOOL_RECORD: %s; nothing is recorded\n", error.what());
    return false;
  }
  std::atexit([] { StopRecording(); });
  std::at_quick_exit([] { StopRecording(); });
  return true;
}();

}  // namespace
}  // namespace tidepool
