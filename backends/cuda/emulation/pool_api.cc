// Memory pools of the emulated runtime.
#include <cstring>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/emulation.h"

using tidepool::EmulatedCuda;
using tidepool::cuda_emulation::current_device;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::Emulation;
using tidepool::cuda_emulation::Fail;

namespace {

using Lock = tidepool::cuda_emulation::CallLock;

cudaMemPool_t PoolOf(int number) {
  return reinterpret_cast<cudaMemPool_t>(static_cast<intptr_t>(number) + 1);
}
int NumberOf(cudaMemPool_t pool) { return static_cast<int>(reinterpret_cast<intptr_t>(pool)) - 1; }

}  // namespace

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = PoolOf(device);
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice ||
      properties->location.id >= emulation.devices) {
    return Fail(cudaErrorInvalidValue);
  }
  const int number = emulation.memory.CreatePool(properties->location.id);
  if (number < 0) return Fail(cudaErrorMemoryAllocation);
  *pool = PoolOf(number);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (attribute != cudaMemPoolAttrReleaseThreshold) return Fail(cudaErrorInvalidValue);
  std::memcpy(&emulation.memory.pool(NumberOf(pool)).threshold, value, sizeof(uint64_t));
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  const auto& state = emulation.memory.pool(NumberOf(pool));
  uint64_t result = 0;
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      result = state.threshold;
      break;
    case cudaMemPoolAttrReservedMemCurrent:
      result = state.used + state.kept;
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      result = state.used;
      break;
    default:
      return Fail(cudaErrorInvalidValue);
  }
  std::memcpy(value, &result, sizeof(result));
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  emulation.memory.TrimPool(NumberOf(pool), bytes);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 size_t count) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (!emulation.peers) return Fail(cudaErrorInvalidDevice);
  for (size_t i = 0; i < count; ++i)
    emulation.memory.SetPoolAccess(NumberOf(pool), access[i].location.id);
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *pointer = nullptr;
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (emulation.Stream(stream)->capture != nullptr) Die("an allocation was captured");
  if (EmulatedCuda::Get().allocation_faults().Next()) return Fail(emulation.allocation_error);
  *pointer = emulation.memory.Allocate(emulation.memory.pool(NumberOf(pool)).device, bytes,
                                       NumberOf(pool));
  if (*pointer == nullptr) return Fail(cudaErrorMemoryAllocation);
  ++emulation.counters.pool_allocations;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(pointer, bytes, PoolOf(current_device), stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  CUstream_st* const queue = emulation.Stream(stream);
  if (queue->capture != nullptr) Die("the end of a block was captured");
  if (!emulation.memory.IsDevice(pointer, 1)) Die("cudaFreeAsync(%p): not device memory", pointer);
  ++emulation.counters.pool_frees;
  emulation.Add(queue, [=, &emulation] {
    if (!emulation.memory.Free(static_cast<char*>(pointer)))
      Die("cudaFreeAsync(%p): not a block", pointer);
  });
  return cudaSuccess;
}
