#include "tidepool/memory/workspace/allocators.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory_resource>

namespace tidepool {
namespace {

template <typename Resource>
Resource& OfThread() {
  thread_local Resource resource(std::pmr::new_delete_resource());
  return resource;
}

constexpr size_t kSizeBytes = 16;  // keeps the alignment of malloc

template <typename Resource>
void* AllocateWithSize(size_t bytes) {
  void* const block = OfThread<Resource>().allocate(kSizeBytes + bytes);
  *static_cast<size_t*>(block) = kSizeBytes + bytes;
  return static_cast<char*>(block) + kSizeBytes;
}

template <typename Resource>
void ReleaseWithSize(void* data) {
  void* const block = static_cast<char*>(data) - kSizeBytes;
  OfThread<Resource>().deallocate(block, *static_cast<size_t*>(block));
}

}  // namespace

// The loader reads the setting when a program starts.
void RestartWithStaticTls() {
  if (std::getenv("GLIBC_TUNABLES") != nullptr) return;
  setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=65536", 1);
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
}

bool RunsOnce() { return std::getenv("TIDEPOOL_BENCHMARK_ONCE") != nullptr; }

std::vector<Allocator> StandardResources() {
  using Pool = std::pmr::unsynchronized_pool_resource;
  using Monotonic = std::pmr::monotonic_buffer_resource;
  return {{"pmr_pool", &AllocateWithSize<Pool>, &ReleaseWithSize<Pool>},
          {"pmr_monotonic", &AllocateWithSize<Monotonic>, &ReleaseWithSize<Monotonic>,
           [] { OfThread<Monotonic>().release(); }}};
}

std::vector<Allocator> FindAllocators(std::vector<std::string>* absent) {
  std::vector<Allocator> found = {{"glibc", &std::malloc, &std::free}};
  found[0].allocate_aligned = &std::aligned_alloc;
  struct Peer {
    const char *name, *library, *allocate, *release, *allocate_aligned;
  };
  constexpr Peer kPeers[] = {
      {"tcmalloc", "libtcmalloc_minimal.so.4", "tc_malloc", "tc_free", "tc_memalign"},
      {"mimalloc", "libmimalloc.so.2.0", "mi_malloc", "mi_free", "mi_memalign"},
      {"jemalloc", "libjemalloc.so.2", "malloc", "free", "aligned_alloc"},
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  for (const Peer& peer : kPeers) {
    absent->push_back(std::string(peer.name) +
                      ": not beside sanitizers, which find their leaks and do not see how "
                      "they synchronise");
  }
  return found;
#endif
  for (const Peer& peer : kPeers) {
    void* library = dlopen(peer.library, RTLD_NOW | RTLD_LOCAL);
    void* allocate = library != nullptr ? dlsym(library, peer.allocate) : nullptr;
    void* release = library != nullptr ? dlsym(library, peer.release) : nullptr;
    if (allocate == nullptr || release == nullptr) {
      const char* const why = dlerror();
      absent->push_back(std::string(peer.name) + ": absent (" + (why != nullptr ? why : "") + ")");
      continue;
    }
    found.push_back({peer.name, reinterpret_cast<void* (*)(size_t)>(allocate),
                     reinterpret_cast<void (*)(void*)>(release)});
    found.back().allocate_aligned =
        reinterpret_cast<void* (*)(size_t, size_t)>(dlsym(library, peer.allocate_aligned));
  }
  return found;
}

std::vector<Allocator> FindAllocators() {
  RestartWithStaticTls();
  std::vector<std::string> absent;
  std::vector<Allocator> found = FindAllocators(&absent);
  for (const std::string& line : absent) std::fprintf(stderr, "%s\n", line.c_str());
  return found;
}

}  // namespace tidepool
