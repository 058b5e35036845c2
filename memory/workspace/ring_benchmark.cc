// What a ring costs (P11 of docs/performance.md): slots alone, and batches through producer and
// reader threads beside a pipeline that copies them.
//
// A batch is 128 images of 784 bytes, decoded to floats. The reader sums them and then is busy for a
// random time of the given mean (microseconds). ReaderAlone is what the reader does without waiting
// for anybody: Ring should reach it wherever the producer is the faster side.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool {
namespace {

constexpr size_t kValues = 128 * 784;
constexpr size_t kBatchBytes = kValues * sizeof(float);
constexpr int kSlots = 4;

void OpenCommitRelease(benchmark::State& state) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(kSlots));
  const int requests = static_cast<int>(state.range(0));
  for (auto _ : state) {
    RingSlotScope slot(ring);
    for (int i = 0; i < requests; ++i) {
      BufferHandle array(AllocateHere(4096));
      benchmark::DoNotOptimize(array->data);
    }
    SlotLease lease = slot.Commit();
  }
}
BENCHMARK(OpenCommitRelease)->Arg(0)->Arg(8)->Arg(64);

void Memcpy(benchmark::State& state) {
  std::vector<float> from(kValues, 1.0f), to(kValues, 2.0f);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kBatchBytes);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(Memcpy);

std::vector<unsigned char> Images() {
  std::vector<unsigned char> images(kValues);
  std::mt19937 random(1);
  for (unsigned char& value : images) value = static_cast<unsigned char>(random());
  return images;
}

void Decode(const std::vector<unsigned char>& images, float* values) {
  for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(images[i]) * (1.0f / 255);
  benchmark::ClobberMemory();
}

// What a reader does with a batch.
class Work {
 public:
  explicit Work(int64_t mean_microseconds) : mean_(mean_microseconds) {}
  void operator()(const float* values) {
    float sums[16] = {};
    for (size_t i = 0; i < kValues; i += 16) {
      for (size_t j = 0; j < 16; ++j) sums[j] += values[i + j];
    }
    benchmark::DoNotOptimize(sums);
    if (mean_ == 0) return;
    const auto busy =
        std::chrono::nanoseconds(std::uniform_int_distribution<int64_t>(0, 2000 * mean_)(random_));
    const auto until = std::chrono::steady_clock::now() + busy;
    while (std::chrono::steady_clock::now() < until) {
    }
  }

 private:
  int64_t mean_;
  std::mt19937 random_{2};
};

void ProducerAlone(benchmark::State& state) {
  const std::vector<unsigned char> images = Images();
  std::vector<float> values(kValues);
  for (auto _ : state) Decode(images, values.data());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ProducerAlone)->UseRealTime();

// On one thread, so that processor time tells also on a busy machine: what handing a batch over adds
// to making it, through the ring and by a copy.
void ProducerThroughRing(benchmark::State& state) {
  const std::vector<unsigned char> images = Images();
  RingWorkspace ring("ring", WorkspaceConfig::Ring(kSlots));
  RingChannel<BufferHandle> channel(ring);
  for (auto _ : state) {
    RingSlotScope slot(ring);
    BufferHandle values(AllocateHere(kBatchBytes));
    Decode(images, reinterpret_cast<float*>(values->data));
    channel.Push(slot.Commit(), std::move(values));
    benchmark::DoNotOptimize(channel.Pop()->value->data);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ProducerThroughRing);

void ProducerAndCopies(benchmark::State& state) {
  const std::vector<unsigned char> images = Images();
  std::vector<float> values(kValues), queued(kValues), read(kValues);
  for (auto _ : state) {
    Decode(images, values.data());
    std::memcpy(queued.data(), values.data(), kBatchBytes);
    benchmark::ClobberMemory();
    std::memcpy(read.data(), queued.data(), kBatchBytes);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ProducerAndCopies);

void ReaderAlone(benchmark::State& state) {
  std::vector<std::vector<float>> batches(kSlots, std::vector<float>(kValues, 0.5f));
  Work work(state.range(0));
  size_t next = 0;
  for (auto _ : state) work(batches[next++ % kSlots].data());
  state.SetItemsProcessed(state.iterations());
}

void Ring(benchmark::State& state) {
  struct Batch {
    BufferHandle values;
    const std::byte* decoded_at;
  };
  const std::vector<unsigned char> images = Images();
  const auto slots = static_cast<int>(state.range(1));
  RingWorkspace ring("ring", WorkspaceConfig::Ring(slots));
  RingChannel<Batch> channel(ring);
  std::jthread producer([&](std::stop_token stop) {
    while (std::optional<RingSlotScope> slot = RingSlotScope::Open(ring, stop)) {
      BufferHandle values(AllocateHere(kBatchBytes));
      Decode(images, reinterpret_cast<float*>(values->data));
      const std::byte* decoded_at = values->data;
      if (!channel.Push(slot->Commit(), {std::move(values), decoded_at})) return;
    }
  });
  Work work(state.range(0));
  auto read = [&] {
    auto item = channel.Pop();
    work(reinterpret_cast<const float*>(item->value.values->data));
    return item->value.values->data == item->value.decoded_at;
  };
  for (int i = 0; i < 4 * slots; ++i) read();
  const RingStats before = ring.stats();
  const int64_t asked = MemoryTracker::Global().system_allocations();
  int64_t moved = 0;
  for (auto _ : state) moved += read() ? 0 : 1;
  const RingStats after = ring.stats();
  state.SetItemsProcessed(state.iterations());
  state.counters["batches_copied"] = static_cast<double>(moved);
  state.counters["requests_outside"] = static_cast<double>(after.spills - before.spills);
  state.counters["asked_of_system"] =
      static_cast<double>(MemoryTracker::Global().system_allocations() - asked);
  state.counters["producer_waits"] = benchmark::Counter(
      static_cast<double>(after.waits - before.waits), benchmark::Counter::kAvgIterations);
  producer.request_stop();
}

// The same with a bounded queue of as many buffers, into and out of which batches are copied.
void CopyingQueue(benchmark::State& state) {
  const std::vector<unsigned char> images = Images();
  std::vector<std::vector<float>> buffers(kSlots, std::vector<float>(kValues));
  std::mutex mutex;
  std::condition_variable_any changed;
  uint64_t pushed = 0, popped = 0;
  std::jthread producer([&](std::stop_token stop) {
    std::vector<float> decoded(kValues);
    for (;;) {
      Decode(images, decoded.data());
      std::unique_lock<std::mutex> lock(mutex);
      if (!changed.wait(lock, stop, [&] { return pushed - popped < kSlots; })) return;
      float* const buffer = buffers[pushed % kSlots].data();
      lock.unlock();
      std::memcpy(buffer, decoded.data(), kBatchBytes);
      lock.lock();
      ++pushed;
      changed.notify_all();
    }
  });
  Work work(state.range(0));
  std::vector<float> batch(kValues);
  for (auto _ : state) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return pushed > popped; });
    const float* const buffer = buffers[popped % kSlots].data();
    lock.unlock();
    std::memcpy(batch.data(), buffer, kBatchBytes);
    lock.lock();
    ++popped;
    changed.notify_all();
    lock.unlock();
    work(batch.data());
  }
  state.SetItemsProcessed(state.iterations());
  producer.request_stop();
}

BENCHMARK(ReaderAlone)->Arg(0)->Arg(50)->Arg(200)->UseRealTime();
// More slots hide more of the delays' variance, and hold more than a processor's own cache.
BENCHMARK(Ring)->ArgsProduct({{0, 50, 200}, {kSlots, 4 * kSlots}})->UseRealTime();
BENCHMARK(CopyingQueue)->Arg(0)->Arg(50)->Arg(200)->UseRealTime();

}  // namespace
}  // namespace tidepool
