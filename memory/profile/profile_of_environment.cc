// A program that is linked with this records itself where the environment's TIDEPOOL_MEMORY_PROFILE names a file: the
// page of all it did is written when it ends by exit() or by returning from main. docs/memory_viewer.md.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "tidepool/memory/profile/memory_profile.h"

namespace tidepool {
namespace {

constexpr const char* kVariable = "TIDEPOOL_MEMORY_PROFILE";

struct Recording {
  std::string path;
  pid_t process;  // children that it forks write nothing
  MemoryProfile profile;
};
Recording* recording = nullptr;

void Write() {
  if (recording->process != getpid()) return;
  try {
    recording->profile.WriteHtml(recording->path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", kVariable, error.what());
  }
}

const bool started = [] {
  const char* const path = std::getenv(kVariable);
  if (path == nullptr || path[0] == '\0') return false;
  try {
    recording = new Recording{path, getpid(), MemoryProfile({.title = "Memory of a program"})};
    std::atexit(&Write);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", kVariable, error.what());
    return false;
  }
}();

}  // namespace
}  // namespace tidepool
