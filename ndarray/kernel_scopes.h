// Scopes that change how the kernels of a thread's calls are run, for what places whole networks.
//
// Threads: a scope is of the thread that made it. They end in the reverse order of their beginning.
#ifndef TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_
#define TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_

#include <cstdint>
#include <utility>

namespace tidepool {

class Workspace;

namespace internal {

// Of the calling thread's operators; 0 where nothing is out of the ordinary, which costs calls one comparison.
enum CallMark : uint8_t {
  kKernelsOff = 1,
  kWritesTold = 2,  // to the MemoryListener, of which arrays each operator writes
};
extern thread_local constinit uint8_t call_marks;
inline bool KernelsAreOff() { return (call_marks & kKernelsOff) != 0; }
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
  KernelsOffScope() : before_(internal::call_marks & internal::kKernelsOff) {
    internal::call_marks |= internal::kKernelsOff;
  }
  ~KernelsOffScope() {
    internal::call_marks =
        static_cast<uint8_t>((internal::call_marks & ~internal::kKernelsOff) | before_);
  }
  KernelsOffScope(const KernelsOffScope&) = delete;
  KernelsOffScope& operator=(const KernelsOffScope&) = delete;

 private:
  const uint8_t before_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_SCOPES_H_
