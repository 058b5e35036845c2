// Memory, copies and fills of the emulated runtime, and the driver's virtual memory functions.
#include <cstring>
#include <vector>

#include "cuda.h"
#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/emulation.h"

using tidepool::EmulatedCuda;
using tidepool::cuda_emulation::current_device;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::Emulation;
using tidepool::cuda_emulation::Fail;

namespace {

using Lock = tidepool::cuda_emulation::CallLock;

char* Chars(void* pointer) { return static_cast<char*>(pointer); }
char* Chars(CUdeviceptr pointer) { return reinterpret_cast<char*>(pointer); }

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  emulation.has_context[current_device] = true;
  *total = emulation.memory.capacity(current_device);
  const size_t used = emulation.TakenBytes(current_device);
  *free = *total - (used < *total ? used : *total);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (emulation.devices == 0) return Fail(cudaErrorNoDevice);
  if (emulation.UnsafeWhileCapturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (EmulatedCuda::Get().allocation_faults().Next()) return Fail(emulation.allocation_error);
  *pointer = emulation.memory.Allocate(current_device, bytes);
  if (*pointer == nullptr) return Fail(cudaErrorMemoryAllocation);
  ++emulation.counters.allocations;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (pointer == nullptr) return cudaSuccess;
  if (emulation.UnsafeWhileCapturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  ++emulation.counters.device_synchronizations;  // as the driver does
  emulation.RunAll();
  if (!emulation.memory.Free(Chars(pointer))) return Fail(cudaErrorInvalidValue);
  ++emulation.counters.frees;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *pointer = nullptr;
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (emulation.devices == 0) return Fail(cudaErrorNoDevice);
  if (emulation.UnsafeWhileCapturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  if (EmulatedCuda::Get().allocation_faults().Next()) return Fail(emulation.allocation_error);
  *pointer = emulation.memory.AllocateHost(bytes);
  if (*pointer == nullptr) return Fail(cudaErrorMemoryAllocation);
  ++emulation.counters.host_allocations;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (pointer == nullptr) return cudaSuccess;
  if (emulation.UnsafeWhileCapturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  emulation.RunAll();
  if (!emulation.memory.FreeHost(Chars(pointer))) return Fail(cudaErrorInvalidValue);
  ++emulation.counters.host_frees;
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().allocation_faults().Next()) return Fail(emulation.allocation_error);
  if (!emulation.memory.Register(Chars(pointer), bytes)) return Fail(cudaErrorInvalidValue);
  ++emulation.counters.host_allocations;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  emulation.RunAll();
  if (!emulation.memory.Unregister(Chars(pointer))) return Fail(cudaErrorInvalidValue);
  ++emulation.counters.host_frees;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (device >= emulation.devices || peer >= emulation.devices) return Fail(cudaErrorInvalidDevice);
  *can = device != peer && emulation.peers ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *attributes = {};
  if (emulation.memory.IsDevice(pointer, 1, &attributes->device)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (emulation.memory.IsPinned(pointer, 1)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}

// ---- copies -------------------------------------------------------------------------------------

namespace {

// Ends the program unless a copy may have this side.
void CheckSide(Emulation& emulation, const char* side, const void* at, size_t bytes,
               bool is_device) {
  if (is_device) {
    if (!emulation.memory.IsDevice(at, bytes)) {
      Die("a copy or fill %s %p, %zu bytes: not mapped memory of a device", side, at, bytes);
    }
  } else if (emulation.memory.TouchesDevice(at, bytes)) {
    Die("a copy %s %p, %zu bytes: device memory where host memory is due", side, at, bytes);
  }
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().call_faults().Next()) return Fail(cudaErrorUnknown);
  CUstream_st* const queue = emulation.Stream(stream);
  if (bytes == 0) return cudaSuccess;
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) {
    to_device = emulation.memory.TouchesDevice(to, bytes);
    from_device = emulation.memory.TouchesDevice(from, bytes);
  }
  CheckSide(emulation, "to", to, bytes, to_device);
  CheckSide(emulation, "from", from, bytes, from_device);
  const bool capturing = queue->capture != nullptr;
  const auto copy = [=, &emulation](const void* source) {
    CheckSide(emulation, "to", to, bytes, to_device);
    if (from_device) CheckSide(emulation, "from", from, bytes, true);
    std::memcpy(to, source, bytes);
    ++emulation.counters.copies;
  };
  // Ordinary host memory is read before the call returns.
  if (!from_device && !capturing && !emulation.memory.IsPinned(from, bytes)) {
    const std::shared_ptr<char[]> staged(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
    emulation.AddDeviceWork(queue, [=] { copy(staged.get()); });
  } else {
    emulation.AddDeviceWork(queue, [=] { copy(from); });
  }
  // And written.
  if (!to_device && !capturing && !emulation.memory.IsPinned(to, bytes)) {
    emulation.RunUntil([&] { return queue->queue.empty(); }, "cudaMemcpyAsync");
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                                 size_t count, cudaMemcpyAttributes* attributes, size_t* first,
                                 size_t attributes_count, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().call_faults().Next()) return Fail(cudaErrorUnknown);
  if (!emulation.copies_together) return Fail(cudaErrorNotSupported);
  CUstream_st* const queue = emulation.Stream(stream);
  if (stream == nullptr || count == 0 || attributes_count != 1 || *first != 0 ||
      attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream)
    return Fail(cudaErrorInvalidValue);
  if (queue->capture != nullptr) Die("cudaMemcpyBatchAsync in a captured stream");
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> copies;
  for (size_t i = count; i-- > 0;) {
    if (bytes[i] == 0) return Fail(cudaErrorInvalidValue);
    CheckSide(emulation, "to", to[i], bytes[i], true);
    if (!emulation.memory.IsPinned(from[i], bytes[i]))
      Die("cudaMemcpyBatchAsync from %p: not page-locked", from[i]);
    copies.push_back({to[i], from[i], bytes[i]});
  }
  emulation.AddDeviceWork(queue, [copies, &emulation] {
    for (const Copy& copy : copies) {
      CheckSide(emulation, "to", copy.to, copy.bytes, true);
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    ++emulation.counters.copies;
    emulation.counters.copied_together += static_cast<int64_t>(copies.size());
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().call_faults().Next()) return Fail(cudaErrorUnknown);
  CUstream_st* const queue = emulation.Stream(stream);
  const auto check = [=, &emulation] {
    int at[2] = {-1, -1};
    if (!emulation.memory.IsDevice(to, bytes, &at[0]) ||
        !emulation.memory.IsDevice(from, bytes, &at[1]) || at[0] != to_device ||
        at[1] != from_device) {
      Die("cudaMemcpyPeerAsync(%p, %d, %p, %d, %zu): not memory of these devices", to, to_device,
          from, from_device, bytes);
    }
    if (!emulation.memory.IsReachable(to, bytes, queue->device) ||
        !emulation.memory.IsReachable(from, bytes, queue->device)) {
      Die("cudaMemcpyPeerAsync(%p, %d, %p, %d, %zu): device %d has no access", to, to_device, from,
          from_device, bytes, queue->device);
    }
  };
  check();
  emulation.AddDeviceWork(queue, [=, &emulation] {
    check();
    std::memcpy(to, from, bytes);
    ++emulation.counters.peer_copies;
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().call_faults().Next()) return Fail(cudaErrorUnknown);
  CUstream_st* const queue = emulation.Stream(stream);
  if (bytes == 0) return cudaSuccess;
  CheckSide(emulation, "of", to, bytes, true);
  emulation.AddDeviceWork(queue, [=, &emulation] {
    CheckSide(emulation, "of", to, bytes, true);
    std::memset(to, value, bytes);
    ++emulation.counters.fills;
  });
  return cudaSuccess;
}

// ---- virtual memory -----------------------------------------------------------------------------

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (properties->location.id >= emulation.devices) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = EmulatedCuda::kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (bytes == 0 || bytes % EmulatedCuda::kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (EmulatedCuda::Get().allocation_faults().Next())
    return static_cast<CUresult>(emulation.allocation_error);
  char* const base = emulation.memory.Reserve(bytes, alignment);
  if (base == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(base);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (!emulation.memory.Unreserve(Chars(address), bytes)) {
    Die("cuMemAddressFree(%llx, %zu): not a range, or something is mapped", address, bytes);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0 || bytes % EmulatedCuda::kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->location.id >= emulation.devices) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (EmulatedCuda::Get().allocation_faults().Next())
    return static_cast<CUresult>(emulation.allocation_error);
  *handle = emulation.memory.Create(properties->location.id, bytes);
  return *handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (!emulation.memory.ReleaseHandle(handle)) Die("cuMemRelease(%llu): not a handle", handle);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (offset != 0 || !emulation.memory.Map(Chars(address), bytes, handle)) {
    Die("cuMemMap(%llx, %zu): outside of a range, mapped already, or another size", address, bytes);
  }
  ++emulation.counters.maps;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (!emulation.memory.Unmap(Chars(address), bytes)) {
    Die("cuMemUnmap(%llx, %zu): not whole mappings", address, bytes);
  }
  ++emulation.counters.unmaps;
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
      !emulation.memory.SetAccess(Chars(address), bytes, access->location.id)) {
    Die("cuMemSetAccess(%llx, %zu): not whole mappings", address, bytes);
  }
  return CUDA_SUCCESS;
}
