#include "tidepool/memory/accounting/system_counters.h"

#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/stack.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace tidepool {
namespace {

int PrefaultObject(dl_phdr_info* object, size_t, void*) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) / page * page;
    const uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    // Writable pages are private copies, made by the first write. Pages the loader has protected
    // since are refused, which is fine: they are there already.
    for (uintptr_t at = begin; at < end; at += page) {
      void* address = reinterpret_cast<void*>(at);
      if ((segment.p_flags & PF_W) == 0 || madvise(address, page, MADV_POPULATE_WRITE) != 0) {
        madvise(address, page, MADV_POPULATE_READ);
      }
    }
  }
  return 0;
}

// Made before the filter is, so that the watching thread itself is not filtered.
struct Watcher {
  std::mutex mutex;
  std::condition_variable changed;
  bool decided = false;
  int listener = -1;  // under the mutex until decided
  std::atomic<int64_t> calls{0};
};

void Watch(Watcher* watcher) {
  {
    std::unique_lock<std::mutex> lock(watcher->mutex);
    watcher->changed.wait(lock, [&] { return watcher->decided; });
  }
  if (watcher->listener < 0) return;
  for (;;) {
    seccomp_notif request;
    std::memset(&request, 0, sizeof(request));
    if (ioctl(watcher->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      return;
    }
    watcher->calls.fetch_add(1, std::memory_order_relaxed);
    seccomp_notif_resp response;
    std::memset(&response, 0, sizeof(response));
    response.id = request.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(watcher->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
}

int InstallFilter() {
#define TIDEPOOL_REPORT(number)                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      TIDEPOOL_REPORT(__NR_mmap),
      TIDEPOOL_REPORT(__NR_munmap),
      TIDEPOOL_REPORT(__NR_mremap),
      TIDEPOOL_REPORT(__NR_mprotect),
      TIDEPOOL_REPORT(__NR_madvise),
      TIDEPOOL_REPORT(__NR_brk),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
#undef TIDEPOOL_REPORT
  sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

Watcher* Start(std::string* reason) {
  auto* watcher = new Watcher;  // watched until the process ends
  try {
    std::thread(Watch, watcher).detach();
  } catch (const std::system_error& error) {
    delete watcher;
    *reason = absl::StrCat("the system refused a thread that counts them: ", error.what());
    return nullptr;
  }
  const int listener = InstallFilter();
  const int error = errno;
  {
    std::lock_guard<std::mutex> lock(watcher->mutex);
    watcher->listener = listener;
    watcher->decided = true;
  }
  watcher->changed.notify_one();
  if (listener >= 0) return watcher;
  *reason = absl::StrCat("the kernel refused a seccomp listener: ", std::strerror(error));
  return nullptr;
}

std::atomic<Watcher*> active{nullptr};

}  // namespace

int64_t ResidentBytes() {
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  long long total = 0, resident = 0;
  if (std::sscanf(text, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PageFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

void PrefaultProgram() {
  dl_iterate_phdr(&PrefaultObject, nullptr);
  TouchStack();
}

bool StartCountingMemorySystemCalls(std::string* reason) {
#ifdef __SANITIZE_ADDRESS__
  *reason =
      "built with AddressSanitizer: LeakSanitizer stops all threads at the end, the watching one "
      "too";
  return false;
#endif
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (active.load() == nullptr) active.store(Start(reason));
  return active.load() != nullptr;
}

int64_t MemorySystemCalls() {
  const Watcher* watcher = active.load(std::memory_order_acquire);
  return watcher != nullptr ? watcher->calls.load(std::memory_order_relaxed) : -1;
}

}  // namespace tidepool
