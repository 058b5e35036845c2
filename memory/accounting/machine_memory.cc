#include "tidepool/memory/accounting/machine_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace tidepool {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number that the file begins with; kUnknown for another text ("max") and without the file.
int64_t NumberIn(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return kUnknown;
  char text[64];
  const ssize_t length = read(file, text, sizeof text);
  close(file);
  int64_t number = 0;
  if (length <= 0 || std::from_chars(text, text + length, number).ec != std::errc())
    return kUnknown;
  return number > 0 ? number : kUnknown;
}

int64_t Look() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  const int64_t physical = pages > 0 && page_bytes > 0 ? pages * page_bytes : kUnknown;
  // Of version 2 and 1 of control groups, as containers see their own.
  return std::min({physical, NumberIn("/sys/fs/cgroup/memory.max"),
                   NumberIn("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
}

}  // namespace

int64_t MachineMemoryBytes() {
  static const int64_t bytes = Look();
  return bytes;
}

}  // namespace tidepool
