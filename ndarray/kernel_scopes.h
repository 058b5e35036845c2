// Scopes that change how the kernels of a thread's calls are run, for what places whole networks.
//
// Threads: a scope is of the thread that made it. They end in the reverse order of their beginning.
#ifndef TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_
#define TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_

#include <utility>

namespace tidepool {

class Workspace;

namespace internal {

extern thread_local constinit bool kernels_are_off;
extern thread_local constinit Workspace* kernel_scratch;  // null: the current place

}  // namespace internal

// What kernels need beside their operands, and the dense copies of views that they do not take, is
// taken from `workspace`, which is open on this thread for as long, instead of from the current
// place. Null: from the current place again.
class [[nodiscard]] KernelScratchScope {
 public:
  explicit KernelScratchScope(Workspace* workspace)
      : before_(std::exchange(internal::kernel_scratch, workspace)) {}
  ~KernelScratchScope() { internal::kernel_scratch = before_; }
  KernelScratchScope(const KernelScratchScope&) = delete;
  KernelScratchScope& operator=(const KernelScratchScope&) = delete;

 private:
  Workspace* const before_;
};

// A dry run: calls check their operands, make their results, take their scratch, are recorded by
// tapes, and compute nothing: what results hold is whatever memory held. To find what a program
// will need before it runs; memory that nobody touches costs none on systems that commit it when it
// is touched.
class [[nodiscard]] KernelsOffScope {
 public:
  KernelsOffScope() : before_(std::exchange(internal::kernels_are_off, true)) {}
  ~KernelsOffScope() { internal::kernels_are_off = before_; }
  KernelsOffScope(const KernelsOffScope&) = delete;
  KernelsOffScope& operator=(const KernelsOffScope&) = delete;

 private:
  const bool before_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_
