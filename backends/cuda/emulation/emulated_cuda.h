// The emulated CUDA devices: what tests set and see.
//
// A small implementation of the CUDA runtime, the driver's virtual memory functions, cuBLAS and
// cuBLASLt on host memory, for tests of the backend where there is no device. The sources of the backend are
// compiled by the C++ compiler against the headers in include/ (cuda_kernel_library makes both).
//
//   - Device memory lies at addresses that are mapped without access; only while kernels and copies
//     of the emulation run can they be read and written. Fresh memory is filled with 0xff.
//   - Nothing queued runs before somebody waits (a synchronisation, a query, a copy with ordinary host
//     memory, or very long queues). Then streams take turns in an order drawn from the seed, so that
//     work which no event holds back comes late or early.
//   - Kernels run thread after thread in drawn order: block_runner.h.
//   - A device has a capacity; allocations and calls fail where the fault plans say so.
//   - Wrong arguments end the program with a message where the driver would refuse or crash.
//
// Threads: any; one call is served at a time.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDA_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/testing/fault_plan.h"

namespace tidepool {

class EmulatedCuda {
 public:
  static constexpr int kDevices = 2;             // at first
  static constexpr size_t kGranularity = 65536;  // of mappings

  struct Counters {
    int64_t allocations = 0, frees = 0;            // cudaMalloc, cudaFree
    int64_t pool_allocations = 0, pool_frees = 0;  // in stream order
    int64_t host_allocations = 0, host_frees = 0;  // page-locked
    int64_t maps = 0, unmaps = 0;
    int64_t peer_copies = 0;  // that have run
    int64_t copied_together =
        0;  // pieces of copies that were one call, which `copies` counts as one
    int64_t fused_products = 0;  // of `products`: by cuBLASLt
    int64_t kernels = 0, products = 0, copies = 0, fills = 0, graph_launches = 0;  // that have run
    int64_t synchronizations = 0;         // of streams and events
    int64_t device_synchronizations = 0;  // of everything
    int64_t streams = 0, events = 0;      // created
  };

  static EmulatedCuda& Get();

  // Before the first use of the backend. 0: as where there is no device.
  void set_devices(int devices);
  void set_capacity(size_t bytes, int device = 0);  // 1 GiB at first
  // What the context of a device takes from the first call on that makes one (cudaSetDevice, cudaMemGetInfo); 0 at first.
  // Before the first use of the backend.
  void set_context_bytes(size_t bytes);
  // Of the order of work and threads.
  void set_seed(uint64_t seed);
  // Every call fails from now on, as after a kernel that touched a wrong address.
  void set_lost(bool lost);
  // Whether devices can access each other's memory; true at first.
  void set_peers(bool peers);
  // Whether the driver has cudaMemcpyBatchAsync; true at first.
  void set_copies_together(bool known);
  // Whether cuBLASLt has an algorithm for what it is asked for; true at first.
  void set_fused_products(bool known);
  size_t used_bytes(int device = 0) const;
  size_t kept_bytes(int device = 0) const;  // beside them, by its pools
  size_t pinned_bytes() const;
  Counters counters() const;
  // Of memory: cudaMalloc, cudaHostAlloc, cuMemCreate, cuMemAddressReserve.
  FaultPlan& allocation_faults() { return allocation_faults_; }
  // What those fail with: cudaErrorMemoryAllocation at first.
  void set_allocation_error(int error);
  // Of work: launches, copies, fills, events, products.
  FaultPlan& call_faults() { return call_faults_; }
  // Of kernels when they run, which use a wrong address then: the devices are lost (set_lost) until the test ends that.
  FaultPlan& kernel_faults() { return kernel_faults_; }
  // Runs all that is queued.
  void Finish();
  // The calling thread is within an emulated call: a driver's memory is not the process's, and a test that refuses operator
  // new spares it.
  static bool in_call();

 private:
  FaultPlan allocation_faults_, call_faults_, kernel_faults_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDA_H_
