// The driver's management library as the runtime asks it, looked up by name as it is: how much of a device is in use.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NVML_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NVML_H_

namespace tidepool {

// As dlopen and dlsym. There is one where contexts take memory (EmulatedCuda::set_context_bytes).
void* OpenEmulatedNvml(const char* name);
void* EmulatedNvmlSymbol(const char* name);

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NVML_H_
