// For tests of pools: a request of a service.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_POOL_SERVICE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_POOL_SERVICE_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

inline BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// A request of a service: arrays of sizes that follow from the batch, alive for some of the others. Each is
// filled and looked at before it goes, so that two that overlap are seen.
inline void Serve(size_t batch, int layers = 6) {
  const size_t unit = batch * 4096;
  BufferHandle x = New(unit * 2);
  const auto fill = [](const BufferHandle& of, int with) {
    std::memset(of->data, with, of->bytes);
    return std::pair<std::byte, std::byte>(of->data[0], of->data[of->bytes - 1]);
  };
  auto seen = fill(x, static_cast<int>(batch));
  for (int i = 0; i < layers; ++i) {
    BufferHandle scratch = New(unit / 2 + 64 * i);
    BufferHandle y = New(unit + 1024 * i);
    const int value = static_cast<int>(batch + 31 * i + 7);
    fill(scratch, ~value);
    EXPECT_EQ(x->data[0], seen.first);
    EXPECT_EQ(x->data[x->bytes - 1], seen.second);
    seen = fill(y, value);
    x = std::move(y);
  }
}

inline void RunThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

inline WorkspaceConfig Quiet() {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  return config;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_POOL_SERVICE_H_
