#include "tidepool/memory/accounting/machine_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

namespace tidepool {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

class SystemFile {
 public:
  explicit SystemFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    length_ = std::max<ssize_t>(read(file, text_, sizeof text_), 0);
    close(file);
  }
  // The number after `key` and blanks; kUnknown for another text ("max"), without the key and without the file.
  int64_t After(std::string_view key) const {
    std::string_view text(text_, static_cast<size_t>(length_));
    const size_t at = text.find(key);
    if (at == std::string_view::npos) return kUnknown;
    text.remove_prefix(at + key.size());
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    return parsed.ec == std::errc() ? number : kUnknown;
  }

 private:
  char text_[4096];
  ssize_t length_ = 0;
};

int64_t NumberIn(const char* path) { return SystemFile(path).After(""); }

int64_t LimitIn(const char* path) {
  const int64_t number = NumberIn(path);
  return number > 0 ? number : kUnknown;
}

// Of a control group; files that can be read again are no use of it.
int64_t LeftIn(const char* limit_path, const char* used_path, const char* statistics_path) {
  const int64_t limit = LimitIn(limit_path), used = NumberIn(used_path);
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  const int64_t files = SystemFile(statistics_path).After("inactive_file ");
  return std::max<int64_t>(limit - used, 0) + (files != kUnknown ? std::min(files, used) : 0);
}

int64_t Look() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  const int64_t physical = pages > 0 && page_bytes > 0 ? pages * page_bytes : kUnknown;
  // Of version 2 and 1 of control groups, as containers see their own.
  return std::min({physical, LimitIn("/sys/fs/cgroup/memory.max"),
                   LimitIn("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
}

}  // namespace

int64_t MachineMemoryBytes() {
  static const int64_t bytes = Look();
  return bytes;
}

int64_t MachineMemoryAndSwapBytes() {
  static const int64_t bytes = [] {
    const int64_t kib = SystemFile("/proc/meminfo").After("SwapTotal:"),
                  memory = MachineMemoryBytes();
    return memory == kUnknown || kib == kUnknown ? kUnknown : memory + kib * 1024;
  }();
  return bytes;
}

int64_t AvailableMemoryBytes() {
  const int64_t kib = SystemFile("/proc/meminfo").After("MemAvailable:");
  return std::min(
      {kib != kUnknown ? kib * 1024 : kUnknown,
       LeftIn("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
              "/sys/fs/cgroup/memory.stat"),
       LeftIn("/sys/fs/cgroup/memory/memory.limit_in_bytes",
              "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat")});
}

// (getrusage's peak may be that of the program that made this one.)
ResidentMemory ResidentMemoryOfProcess() {
  const SystemFile status("/proc/self/status");
  const int64_t most = status.After("VmHWM:"), now = status.After("VmRSS:");
  if (most == kUnknown || now == kUnknown) return {};
  return {now * 1024, std::max(most, now) * 1024};
}

}  // namespace tidepool
