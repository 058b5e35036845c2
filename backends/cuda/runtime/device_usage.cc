#include "tidepool/backends/cuda/runtime/device_usage.h"

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/error.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_nvml.h"
#else
#include <dlfcn.h>
#endif

namespace tidepool::cuda {
namespace {

// As the library's versions have them since 2013.
struct Memory {
  unsigned long long total, free, used;
};
struct Nvml {
  int (*init)() = nullptr;
  int (*device_by_bus)(const char* id, void** device) = nullptr;
  int (*memory)(void* device, Memory* memory) = nullptr;
};

#if defined(TIDEPOOL_CUDA_EMULATED)
void* Open() { return OpenEmulatedNvml("libnvidia-ml.so.1"); }
void* Symbol(void*, const char* name) { return EmulatedNvmlSymbol(name); }
#else
void* Open() { return dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); }
void* Symbol(void* library, const char* name) { return dlsym(library, name); }
#endif

template <typename Function>
bool Look(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(Symbol(library, name));
  return *function != nullptr;
}

// Null: there is none that starts.
const Nvml* Find() {
  static Nvml nvml;
  static const bool usable = [] {
    void* const library = Open();
    return library != nullptr && Look(library, "nvmlInit_v2", &nvml.init) &&
           Look(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.device_by_bus) &&
           Look(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) && nvml.init() == 0;
  }();
  return usable ? &nvml : nullptr;
}

}  // namespace

int64_t UsedBytesOfDevice(int index) noexcept {
  const Nvml* const nvml = Find();
  if (nvml == nullptr) return -1;
  char bus[32] = {};
  const cudaError_t error = cudaDeviceGetPCIBusId(bus, sizeof(bus), index);
  ForgetLastError(error);
  void* device = nullptr;
  Memory memory = {};
  if (error != cudaSuccess || nvml->device_by_bus(bus, &device) != 0 ||
      nvml->memory(device, &memory) != 0)
    return -1;
  return static_cast<int64_t>(memory.used);
}

}  // namespace tidepool::cuda
