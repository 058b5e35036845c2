#include "tidepool/backends/cuda/runtime/device_usage.h"

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/backends/cuda/runtime/loaded_library.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_nvml.h"
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
constexpr LibrarySource kSource = {&OpenEmulatedNvml,
                                   [](void*, const char* name) { return EmulatedNvmlSymbol(name); },
                                   []() -> const char* { return nullptr; }};
#else
const LibrarySource& kSource = kSystemLibraries;
#endif

// Null: there is none that starts.
const Nvml* Find() {
  static Nvml nvml;
  static const bool usable = [] {
    LoadedLibrary loaded(kSource, {"libnvidia-ml.so.1"});
    loaded.LookUp("nvmlInit_v2", &nvml.init);
    loaded.LookUp("nvmlDeviceGetHandleByPciBusId_v2", &nvml.device_by_bus);
    loaded.LookUp("nvmlDeviceGetMemoryInfo", &nvml.memory);
    return loaded.missing().empty() && nvml.init() == 0;
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
