// The state behind the emulated CUDA functions. Internal to the emulation.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATION_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/device_memory.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"

namespace tidepool::cuda_emulation {

using Work = std::function<void()>;

// Captured work in order; a node runs after those it names.
struct Node {
  Work work;
  std::vector<int> after;
};
struct Capture {
  std::vector<Node> nodes;
  CUstream_st* origin = nullptr;
  bool invalid = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};

// What an event's record stands for; waits keep it when the event is recorded again or destroyed.
struct Mark {
  bool passed = false;
  bool is_others = false;            // another rank's call passes it, on a thread of its own
  std::shared_ptr<Capture> capture;  // recorded while capturing
  std::vector<int> nodes;
};

struct Item {
  Work work;                     // or null:
  std::shared_ptr<Mark> record;  // passes the mark
  std::shared_ptr<Mark> wait;    // or waits for it
};

}  // namespace tidepool::cuda_emulation

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  std::deque<tidepool::cuda_emulation::Item> queue;
  std::shared_ptr<tidepool::cuda_emulation::Capture> capture;
  std::vector<int> last;  // nodes that captured work of this stream comes after
};
struct CUevent_st {
  int device = 0;
  std::shared_ptr<tidepool::cuda_emulation::Mark> mark;
};
struct CUgraph_st {
  std::shared_ptr<const tidepool::cuda_emulation::Capture> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const tidepool::cuda_emulation::Capture> work;
};

namespace tidepool::cuda_emulation {

class Emulation {
 public:
  static Emulation& Get();

  // All below need it held.
  std::mutex mutex;

  int devices = EmulatedCuda::kDevices;
  bool lost = false;
  cudaError_t allocation_error =
      cudaErrorMemoryAllocation;  // of the fault plan; the driver's have these numbers too
  size_t context_bytes = 0;       // that a device's context takes
  bool has_context[16] = {};
  bool fused_products = true;
  bool peers = true;
  bool copies_together = true;
  EmulatedCuda::Counters counters;
  DeviceMemory memory;

  // Of a device's memory, with what pools keep and its context takes.
  size_t TakenBytes(int device) const {
    return memory.used(device) + memory.kept(device) + (has_context[device] ? context_bytes : 0);
  }
  // Ends the program unless `stream` is one; null is the current device's own.
  CUstream_st* Stream(cudaStream_t stream);
  // Whether it can be captured from the calling thread: of an unsafe call. Marks captures invalid.
  bool UnsafeWhileCapturing();
  // To the stream's queue, or to what it captures.
  void Add(CUstream_st* stream, Work work);
  // What reads or writes memory: a device that is lost by then does none of it.
  void AddDeviceWork(CUstream_st* stream, Work work);
  void Record(CUstream_st* stream, CUevent_st* event);
  cudaError_t Wait(CUstream_st* stream, CUevent_st* event);
  // Runs work until `done`; ends the program when nothing can run any more.
  void RunUntil(const std::function<bool()>& done, const char* who);
  void RunSome();
  void RunAll();

  uint64_t Random();
  void set_seed(uint64_t seed) { random_ = seed * 0xD1342543DE82EF95u; }

  CUstream_st* NewStream(unsigned flags);
  void EndStream(CUstream_st* stream);
  // No stream captures for it any more.
  void EndCapture(const std::shared_ptr<Capture>& capture) {
    for (const auto& stream : streams_) {
      if (stream->capture == capture) stream->capture = nullptr;
    }
  }

 private:
  Emulation();
  bool IsReady(const CUstream_st& stream) const;
  bool RunOne();
  void SyncWithDefault(CUstream_st* stream);

  uint64_t random_ = 0;
  CUstream_st* favourite_ = nullptr;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  CUstream_st* defaults_[16] = {};
  size_t queued_ = 0;
};

// A call of the calling thread holds the lock: what it allocates is the emulation's own.
extern thread_local bool in_call;
class CallLock {
 public:
  explicit CallLock(std::mutex& mutex) : lock_(mutex) { in_call = true; }
  ~CallLock() { in_call = false; }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

// Of the calling thread.
extern thread_local int current_device;
extern thread_local cudaError_t last_error;
extern thread_local int captures_begun;  // in a mode that forbids unsafe calls
cudaError_t Fail(cudaError_t error);     // keeps it for cudaGetLastError
[[noreturn]] void Die(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Queues a kernel. `pointers`: its arguments that are pointers, which must be memory of the device
// or page-locked.
cudaError_t QueueKernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Work body,
                        std::initializer_list<const void*> pointers);

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATION_H_
