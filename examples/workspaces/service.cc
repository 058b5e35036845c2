#include <cstdio>
#include <thread>
#include <vector>

#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/matmul.h"
using namespace tidepool;

// One request: a batch of `rows` through two layers.
void Serve(WorkspacePool& pool, const NDArray& weights, int rows) {
  PooledScope scope(pool);
  NDArray x = Zeros({rows, 64});
  for (int layer = 0; layer < 2; ++layer) x = Relu(MatMul(x, weights));
}

int main() {
  const NDArray weights = Zeros({64, 64});
  WorkspacePool pool("requests");
  for (int rows = 1; rows <= 32; ++rows) Serve(pool, weights, rows);  // each kind is met once, here
  const WorkspacePoolStats before = pool.stats();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) Serve(pool, weights, 1 + (7 * i + t) % 32);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const WorkspacePoolStats s = pool.stats();
  std::printf(
      "%zu plans; of 8 threads, 8000 requests: %zu missed, %zu outside of the pool's ranges\n",
      s.plans_kept, static_cast<size_t>(s.misses - before.misses),
      static_cast<size_t>(s.spills - before.spills));
}
