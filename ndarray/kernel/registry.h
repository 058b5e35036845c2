// The table of linked kernels, filled by static initialisers.
//
//   static const KernelRegistrar registrar({
//       {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "mine", 30, &RunRelu}});
//
// in a target made with tidepool_kernel_library (alwayslink): linking it is registering it. So is
// opening a library that holds one: calls that begin afterwards find its kernels, and those under way
// run what they have found. Kernels are never taken out, so a library that holds some stays open.
//
// A registration that cannot be meant ends the program and says which and why: of an operator or a
// type of elements that there is none of, for a device type that nobody has named, of elements that the operator is not
// defined for, without a function to run, for copy but for dense operands only, of a provider whose name is empty or has
// control characters, and where two would stand in each other's way, as two of one provider or of one priority for the
// same operator, device type and element type. So do null followers and notes.
// Threads: any; look-ups are lock-free.
#ifndef TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_
#define TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_

#include <atomic>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// All kernels of the process, which are never taken out.
class KernelRegistry {
 public:
  static KernelRegistry& Global();  // the only one; lives for ever

  // Calls that begin afterwards find it. Ends the program where it cannot be meant, as above.
  void Add(const Kernel& kernel);

  // Highest priority first; none for what is no operator or element type. Valid for ever.
  static absl::Span<const Kernel> Find(OpCode op, DeviceType device, DType dtype) {
    if (static_cast<int>(op) >= kMaxOpCodes || static_cast<int>(dtype) >= kDTypes) return {};
    const Row* const row = RowOf(op, device, dtype).load(std::memory_order_acquire);
    return row != nullptr ? absl::Span<const Kernel>(*row) : absl::Span<const Kernel>();
  }

  // Calls `added` for every kernel there is, and for each that comes from then on once it can be found: for providers
  // that run another one's kernels elsewhere. It may add kernels.
  void Follow(void (*added)(const Kernel& kernel));

  // What a provider has to say of itself on this machine, in one line, asked for when shown: which
  // library it found, why it does not run.
  void AddNote(const char* provider, std::string (*note)());

  std::vector<std::string> Providers() const;  // linked, sorted
  std::string Notes() const;                   // "provider: note" lines
  // One line per operator and type it is defined for, with its providers in order; gaps are marked.
  std::string Table() const;

 private:
  using Row = std::vector<Kernel>;
  static std::atomic<const Row*>& RowOf(OpCode op, DeviceType device, DType dtype) {
    return rows_[device.number()][static_cast<int>(op)][static_cast<int>(dtype)];
  }
  template <typename Function>
  static void ForEachRow(const Function& function);
  void Insert(const Kernel& kernel);  // mutex_ is held

  struct Note {
    const char* provider;
    std::string (*text)();
  };
  mutable std::mutex mutex_;  // of additions
  std::vector<void (*)(const Kernel&)> followers_;
  std::vector<Note> notes_;
  // A row is replaced as a whole and never freed: somebody may be reading it. Rows of device types
  // and operators that there are none of cost addresses only.
  static std::atomic<const Row*> rows_[kMaxDeviceTypes][kMaxOpCodes][kDTypes];
};

// Adds kernels to the registry: a static variable of a target that is alwayslink.
struct KernelRegistrar {
  KernelRegistrar(std::initializer_list<Kernel> kernels) {
    for (const Kernel& kernel : kernels) KernelRegistry::Global().Add(kernel);
  }
};

// While it lives, calls of this thread run on `provider` only; an operator it lacks is an error,
// except fill and copy, which creation and views need: those fall back to provider "builtin".
// For contract tests and benchmarks. `provider` must outlive it; null: choose by priority.
class ScopedProvider {
 public:
  explicit ScopedProvider(const char* provider);
  ~ScopedProvider();
  ScopedProvider(const ScopedProvider&) = delete;

  static const char* Current() { return current_; }  // null: choose by priority

 private:
  static thread_local constinit const char* current_;
  const char* previous_;
};

// Most threads a kernel may use of those that all share (threads.h); 1 to 1024, by default the number of
// processors. Results do not depend on it.
void SetThreadCount(int threads);
int ThreadCount();

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_
