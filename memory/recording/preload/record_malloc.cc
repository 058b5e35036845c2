// libtidepool_record.so: records what a program asks of malloc, calloc, realloc, aligned_alloc,
// posix_memalign, memalign, valloc, pvalloc and free, and so of operator new and delete, whatever
// serves them.
//
//   TIDEPOOL_RECORD=trace.rec LD_PRELOAD=libtidepool_record.so program ...
//
// Without TIDEPOOL_RECORD it passes everything on. What it does itself takes no memory from malloc, but
// for what the loader and the thread library do on its behalf, which it serves and does not record.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tidepool/memory/recording/record_output.h"

namespace {

using tidepool::record::Context;
using tidepool::record::Output;
using tidepool::record::Source;

// Of malloc's blocks here: twice a word.
constexpr unsigned kUsualLog2 = 4;

struct Functions {
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void (*free)(void*);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  void (*exit_now)(int);
};

Functions next;
std::atomic<bool> found{false};
std::atomic<bool> records{false};
thread_local constinit bool finding = false;

// What the loader asks for while it looks for those functions. Never given back.
alignas(16) char first_bytes[32768];
std::atomic<size_t> first_used{0};

bool IsFirst(const void* block) {
  return block >= first_bytes && block < first_bytes + sizeof(first_bytes);
}

void* TakeFirst(size_t bytes) {
  const size_t rounded = (bytes + 15) & ~size_t{15};
  const size_t at = first_used.fetch_add(rounded, std::memory_order_relaxed);
  if (bytes > sizeof(first_bytes) || at + rounded > sizeof(first_bytes)) {
    constexpr char kText[] = "libtidepool_record.so: the loader needs more memory than there is\n";
    [[maybe_unused]] const ssize_t written = write(2, kText, sizeof(kText) - 1);
    abort();
  }
  return first_bytes + at;
}

template <typename Function>
void Find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void Begin() {
  // Not of a program with more rights than its user.
  const char* const path = secure_getenv("TIDEPOOL_RECORD");
  if (path == nullptr || path[0] == '\0') return;
  const int error = Output::Global().Open(path, Source::kMalloc);
  if (error == 0) {
    records.store(true, std::memory_order_relaxed);
    return;
  }
  constexpr char kText[] = "libtidepool_record.so: TIDEPOOL_RECORD cannot be written: ";
  [[maybe_unused]] ssize_t written = write(2, kText, sizeof(kText) - 1);
  const char* const why = strerrordesc_np(error);
  if (why != nullptr) written = write(2, why, strlen(why));
  written = write(2, "\n", 1);
}

// False: the loader asks, on behalf of this.
[[gnu::noinline, gnu::cold]] bool FindSlowly() {
  if (finding) return false;
  finding = true;
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  if (!found.load(std::memory_order_relaxed)) {
    Find(next.malloc, "malloc");
    Find(next.calloc, "calloc");
    Find(next.realloc, "realloc");
    Find(next.free, "free");
    Find(next.memalign, "memalign");
    Find(next.aligned_alloc, "aligned_alloc");
    Find(next.posix_memalign, "posix_memalign");
    Find(next.valloc, "valloc");
    Find(next.pvalloc, "pvalloc");
    Find(next.exit_now, "_exit");
    found.store(true, std::memory_order_release);
    Begin();
  }
  pthread_mutex_unlock(&mutex);
  finding = false;
  return true;
}

inline bool Ready() { return found.load(std::memory_order_acquire) || FindSlowly(); }

inline void* Made(void* block, size_t bytes, size_t alignment) {
  if (block != nullptr && records.load(std::memory_order_relaxed)) {
    const unsigned log2 =
        alignment > 16 ? static_cast<unsigned>(std::countr_zero(alignment)) : kUsualLog2;
    Output::Global().Allocated(reinterpret_cast<uintptr_t>(block), bytes, log2, Context());
  }
  return block;
}

inline void Gone(const void* block) {
  if (block != nullptr && records.load(std::memory_order_relaxed)) {
    Output::Global().Freed(reinterpret_cast<uintptr_t>(block));
  }
}

void End() {
  if (records.exchange(false, std::memory_order_relaxed)) Output::Global().Close();
}

struct AtBothEnds {
  AtBothEnds() {
    Ready();
    if (records.load(std::memory_order_relaxed)) at_quick_exit(&End);
  }
} const at_begin;

[[gnu::destructor]] void AtExit() { End(); }

// Numbers of names, by their texts; the last one stands for all that there is no room for.
constexpr uint32_t kMostMarkNames = 256;
std::atomic<const char*> mark_names[kMostMarkNames];
std::atomic<uint64_t> generations{0};

uint32_t NumberOf(const char* name) {
  for (uint32_t i = 0; i + 1 < kMostMarkNames; ++i) {
    const char* known = mark_names[i].load(std::memory_order_acquire);
    if (known == nullptr && mark_names[i].compare_exchange_strong(known, name)) known = name;
    if (strcmp(known, name) == 0) return i + 1;
  }
  return kMostMarkNames;
}

struct OpenCycle {
  uint32_t name;
  uint64_t generation;
};
constexpr int kMostOpenCycles = 64;
thread_local constinit OpenCycle open_cycles[kMostOpenCycles] = {};
thread_local constinit int open_count = 0;

}  // namespace

extern "C" {

#define TIDEPOOL_EXPORT __attribute__((visibility("default")))

TIDEPOOL_EXPORT void* malloc(size_t bytes) {
  if (!Ready()) return TakeFirst(bytes);
  return Made(next.malloc(bytes), bytes, 0);
}

TIDEPOOL_EXPORT void* calloc(size_t count, size_t each) {
  if (!Ready()) return TakeFirst(count * each);  // zero already
  return Made(next.calloc(count, each), count * each, 0);
}

TIDEPOOL_EXPORT void* realloc(void* block, size_t bytes) {
  if (!Ready() || IsFirst(block)) {
    void* const made = malloc(bytes);
    // What lies behind the old block is ours as well, or zero.
    if (made != nullptr && block != nullptr) {
      const size_t left =
          static_cast<size_t>(first_bytes + sizeof(first_bytes) - static_cast<char*>(block));
      memmove(made, block, bytes < left ? bytes : left);
    }
    return made;
  }
  // The old one may be another thread's before this returns.
  Gone(block);
  void* const made = next.realloc(block, bytes);
  if (made != nullptr || bytes == 0) return Made(made, bytes, 0);
  // Refused: it is there still, but its size was not kept.
  return made;
}

TIDEPOOL_EXPORT void free(void* block) {
  if (block == nullptr || IsFirst(block) || !Ready()) return;
  const int error = errno;
  Gone(block);
  next.free(block);
  errno = error;
}

TIDEPOOL_EXPORT void* memalign(size_t alignment, size_t bytes) {
  if (!Ready()) return nullptr;
  return Made(next.memalign(alignment, bytes), bytes, alignment);
}

TIDEPOOL_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!Ready()) return nullptr;
  return Made(next.aligned_alloc(alignment, bytes), bytes, alignment);
}

TIDEPOOL_EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (!Ready()) return ENOMEM;
  const int error = next.posix_memalign(out, alignment, bytes);
  if (error == 0) Made(*out, bytes, alignment);
  return error;
}

TIDEPOOL_EXPORT void* valloc(size_t bytes) {
  if (!Ready() || next.valloc == nullptr) return nullptr;
  return Made(next.valloc(bytes), bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

TIDEPOOL_EXPORT void* pvalloc(size_t bytes) {
  if (!Ready() || next.pvalloc == nullptr) return nullptr;
  return Made(next.pvalloc(bytes), bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

// Ends without destructors. A child of vfork() has its parent's memory: that record goes on.
[[noreturn]] TIDEPOOL_EXPORT void _exit(int status) {
  if (Output::Global().is_of_this_process()) End();
  if (Ready() && next.exit_now != nullptr) next.exit_now(status);
  abort();
}
[[noreturn]] TIDEPOOL_EXPORT void _Exit(int status) { _exit(status); }

TIDEPOOL_EXPORT void tidepool_record_cycle_begin(const char* name) {
  if (name == nullptr) name = "";
  if (!records.load(std::memory_order_relaxed) || open_count >= kMostOpenCycles) return;
  Output& output = Output::Global();
  if (!output.Begin()) return;
  const uint32_t number = NumberOf(name);
  if (!output.HasName(number)) {
    const char* const text = number < kMostMarkNames ? name : "(others)";
    output.Name(number, text, strlen(text));
  }
  const uint64_t generation = generations.fetch_add(1, std::memory_order_relaxed) + 1;
  open_cycles[open_count++] = {number, generation};
  output.Cycle(/*begins=*/true, number, generation);
}

TIDEPOOL_EXPORT void tidepool_record_cycle_end(const char* name) {
  if (name == nullptr) name = "";
  if (!records.load(std::memory_order_relaxed) || open_count == 0) return;
  const uint32_t number = NumberOf(name);
  // Those within it that nobody ended end with it.
  int at = open_count;
  while (at > 0 && open_cycles[at - 1].name != number) --at;
  if (at == 0) return;
  while (open_count >= at) {
    const OpenCycle& cycle = open_cycles[--open_count];
    Output::Global().Cycle(/*begins=*/false, cycle.name, cycle.generation);
  }
}

}  // extern "C"
