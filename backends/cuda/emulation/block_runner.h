// BlockRunner: runs the threads of a kernel's blocks one after the other on this thread.
//
// A thread runs as a plain call until it meets a barrier, a shuffle or a vote; only then is it put
// aside on its fiber and another one made for the threads that follow. The order of blocks, of the
// threads of a block and of those that go on after a barrier is drawn from the seed, so that code
// which relies on one is found out. Ends the program with a message when threads wait for what
// cannot come: a barrier that others passed by or ended before, a shuffle whose mask names threads
// that do not take part.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_BLOCK_RUNNER_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_BLOCK_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/backends/cuda/emulation/fiber.h"

namespace tidepool::cuda_emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// What a device thread knows of itself.
struct ThreadContext {
  Index3 thread, block, block_dim, grid_dim;
  int linear = 0;  // in its block
  void* shared = nullptr;
};

// Of the device thread that runs now; null outside of kernels.
extern constinit thread_local ThreadContext* current_thread;

class BlockRunner {
 public:
  // Of this operating system thread.
  static BlockRunner& Get();

  struct Grid {
    Index3 blocks, threads;
    size_t shared_bytes = 0;
  };
  void Run(const Grid& grid, uint64_t seed, void (*body)(void*), void* argument);

  // Called by device threads.
  enum class Vote { kNone, kAny, kAll, kCount };
  int Barrier(Vote vote, int value);
  // Waits for all lanes of `mask` to bring `bytes` (at most 16) each; copies those of lane
  // `source_lane(i)` back for each of `count` lanes of interest.
  struct Exchange {
    uint32_t mask = 0;
    uint32_t arrived = 0;
    int left = 0;
    alignas(16) unsigned char values[32][16];
  };
  // The values of all lanes; valid until EndExchange.
  Exchange* BeginExchange(uint32_t mask, const void* value, size_t bytes);
  void EndExchange(Exchange* exchange);

 private:
  struct Fiber {
    explicit Fiber(BlockRunner* runner);
    BlockRunner* runner;
    ThreadContext context;
    FiberContext fiber;
  };

  BlockRunner();
  ~BlockRunner();
  static void RunThreads(void* fiber);
  void RunBlock();
  void Park();
  void WakeAll(std::vector<Fiber*>& waiting);
  uint64_t Random();
  [[noreturn]] void Stuck();
  void SetShared(size_t bytes);

  FiberContext scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_, ready_, at_barrier_;
  Fiber* running_ = nullptr;
  uint64_t random_ = 1;

  // Of the block that runs.
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  ThreadContext block_;
  int threads_ = 0, next_ = 0, ended_ = 0;
  int step_ = 1, first_ = 0;  // thread number i in order is (i * step + first) % threads
  int barrier_values_ = 0, barrier_result_ = 0;
  std::vector<std::vector<std::unique_ptr<Exchange>>> exchanges_;  // by warp
  std::vector<std::vector<std::pair<Exchange*, Fiber*>>> exchange_waits_;
  std::vector<std::unique_ptr<Exchange>> spare_;

  char* shared_mapping_ = nullptr;
  size_t shared_mapping_bytes_ = 0;
};

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_BLOCK_RUNNER_H_
