// A service that runs for long: batches of 1 to 32 on so many threads, in one WorkspacePool.
//
//   bazel run //memory/workspace:service_soak -- THREADS SECONDS
//
// A line of JSON each 10 seconds (each second of less than a minute) says what was served, what is
// resident and held, and how many requests have missed or spilled since each batch was seen once.
// Ends with 1 when any did, or when a quarter more and 1 MiB is held at the end than half-way.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

constexpr size_t kBatches = 32;
constexpr double kMiB = 1 << 20;

double ResidentMiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  return 0;
}

BufferHandle Make(size_t bytes) {
  BufferHandle made(AllocateHere(bytes));
  WritePages(made->data, bytes);
  return made;
}

void Serve(WorkspacePool& pool, size_t batch) {
  const PooledScope scope(pool);
  BufferHandle x = Make(batch * 4096);
  for (size_t layer = 0; layer < 24; ++layer) {
    BufferHandle y = Make(batch * (16384 - 512 * layer));
    const BufferHandle scratch = Make(batch * 2048);
    x = std::move(y);
  }
}

int Run(int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  WorkspacePool pool("requests");
  for (size_t batch = 1; batch <= kBatches; ++batch) Serve(pool, batch);
  const WorkspacePoolStats learned = pool.stats();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> served{0};
  std::vector<std::thread> servers;
  for (int i = 0; i < threads; ++i) {
    servers.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      while (!stop) {
        Serve(pool, 1 + random() % kBatches);
        ++served;
      }
    });
  }
  const Clock::time_point start = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  size_t held_half_way = 0;
  WorkspacePoolStats now;
  while (passed() < seconds) {
    std::this_thread::sleep_for(std::chrono::seconds(seconds < 60 ? 1 : 10));
    now = pool.stats();
    if (passed() <= seconds / 2 || held_half_way == 0) held_half_way = now.held_bytes;
    std::printf(
        "{\"threads\":%d,\"seconds\":%.0f,\"requests\":%lu,\"resident_MiB\":%.1f,"
        "\"held_MiB\":%.2f,\"most_open_MiB\":%.2f,\"plans\":%lu,\"plans_given_up\":%lu,"
        "\"misses\":%lu,\"spills\":%lu}\n",
        threads, passed(), served.load(), ResidentMiB(), static_cast<double>(now.held_bytes) / kMiB,
        static_cast<double>(now.most_open_bytes) / kMiB, now.plans, now.plans_given_up,
        now.misses - learned.misses, now.spills - learned.spills);
    std::fflush(stdout);
  }
  stop = true;
  for (std::thread& server : servers) server.join();
  const bool flat = now.held_bytes <= held_half_way + held_half_way / 4 + (size_t{1} << 20);
  return flat && now.misses == learned.misses && now.spills == learned.spills ? 0 : 1;
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  if (threads < 1 || seconds <= 0) {
    std::fprintf(stderr, "usage: service_soak THREADS SECONDS\n");
    return 2;
  }
  return tidepool::Run(threads, seconds);
}
