// The table of linked kernels, filled by static initialisers before main().
//
//   static const KernelRegistrar registrar({
//       {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "mine", 30, &RunRelu}});
//
// in a target made with tidepool_kernel_library (alwayslink): linking it is registering it.
// Threads: registration before main() only; look-ups are lock-free.
#ifndef TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_
#define TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

class KernelRegistry {
 public:
  static KernelRegistry& Global();

  // A second kernel of one provider for one key ends the program, naming both.
  void Add(const Kernel& kernel);

  // Highest priority first.
  absl::Span<const Kernel> Find(OpCode op, DeviceType device, DType dtype) const {
    const std::vector<Kernel>& kernels = table_[Index(op, device, dtype)];
    return absl::Span<const Kernel>(kernels.data(), kernels.size());
  }

  // What a provider has to say of itself on this machine, in one line, asked for when shown: which
  // library it found, why it does not run.
  void AddNote(const char* provider, std::string (*note)());

  std::vector<std::string> Providers() const;  // linked, sorted
  std::string Notes() const;                   // "provider: note" lines
  // One line per operator and type it is defined for, with its providers in order; gaps are marked.
  std::string Table() const;

 private:
  static size_t Index(OpCode op, DeviceType device, DType dtype) {
    return (static_cast<size_t>(op) * kDeviceTypes + static_cast<size_t>(device)) * kDTypes +
           static_cast<size_t>(dtype);
  }
  struct Note {
    const char* provider;
    std::string (*text)();
  };
  std::vector<Note> notes_;
  std::vector<Kernel> table_[kOpCodes * kDeviceTypes * kDTypes];
};

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

  static const char* Current();  // null: choose by priority

 private:
  const char* previous_;
};

// Most threads a kernel may use; 1 to 1024, by default the number of processors. Results do not
// depend on it.
void SetThreadCount(int threads);
int ThreadCount();

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_REGISTRY_H_
