#include "tidepool/backends/cpu/thread_pool.h"

#include <algorithm>
#include <memory>
#include <mutex>

namespace tidepool::cpu {
namespace {

struct Piece {
  absl::FunctionRef<void(int64_t, int64_t)> body;
};

void RunPiece(void* context, size_t begin, size_t size) {
  static_cast<Piece*>(context)->body(static_cast<int64_t>(begin),
                                     static_cast<int64_t>(begin + size));
}

}  // namespace

pthreadpool_t PoolOf(int threads) {
  if (threads <= 1) return nullptr;
  static std::mutex mutex;
  static std::unique_ptr<struct pthreadpool, void (*)(pthreadpool_t)> pool(nullptr,
                                                                           &pthreadpool_destroy);
  std::lock_guard<std::mutex> lock(mutex);
  if (pool == nullptr || pthreadpool_get_threads_count(pool.get()) != static_cast<size_t>(threads)) {
    pool.reset(pthreadpool_create(static_cast<size_t>(threads)));
  }
  return pool.get();  // null when the system refuses threads: one thread does the work
}

void ParallelFor(int threads, int64_t count, int64_t grain, int64_t work,
                 absl::FunctionRef<void(int64_t, int64_t)> body) {
  pthreadpool_t pool = work >= kMinParallelWork && count > grain ? PoolOf(threads) : nullptr;
  if (pool == nullptr) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(begin + grain, count));
    }
    return;
  }
  Piece piece{body};
  pthreadpool_parallelize_1d_tile_1d(pool, &RunPiece, &piece, static_cast<size_t>(count),
                                     static_cast<size_t>(grain), PTHREADPOOL_FLAG_YIELD_WORKERS);
}

}  // namespace tidepool::cpu
