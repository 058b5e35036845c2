#include <cstring>
#include <mutex>
#include <string>

#include "tidepool/backends/cuda/emulation/emulated_nvml.h"
#include "tidepool/backends/cuda/emulation/emulation.h"

namespace tidepool {
namespace {

using cuda_emulation::Emulation;

struct Memory {
  unsigned long long total, free, used;
};
int library = 0;  // has an address

int Init() { return 0; }
// "0000:0b:00.0" is device 11, as cudaDeviceGetPCIBusId says.
int DeviceByBus(const char* id, void** device) {
  *device = reinterpret_cast<void*>(std::stoul(std::string(id).substr(5, 2), nullptr, 16) + 1);
  return 0;
}
int MemoryInfo(void* device, Memory* memory) {
  Emulation& emulation = Emulation::Get();
  std::lock_guard<std::mutex> lock(emulation.mutex);
  const int index = static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1;
  memory->total = emulation.memory.capacity(index);
  memory->used = emulation.TakenBytes(index);
  memory->free = memory->total - memory->used;
  return 0;
}

}  // namespace

void* OpenEmulatedNvml(const char* name) {
  const bool is_there =
      Emulation::Get().context_bytes > 0 && std::strcmp(name, "libnvidia-ml.so.1") == 0;
  return is_there ? &library : nullptr;
}
void* EmulatedNvmlSymbol(const char* name) {
  if (std::strcmp(name, "nvmlInit_v2") == 0) return reinterpret_cast<void*>(&Init);
  if (std::strcmp(name, "nvmlDeviceGetHandleByPciBusId_v2") == 0)
    return reinterpret_cast<void*>(&DeviceByBus);
  if (std::strcmp(name, "nvmlDeviceGetMemoryInfo") == 0)
    return reinterpret_cast<void*>(&MemoryInfo);
  return nullptr;
}

}  // namespace tidepool
