#include <cstdio>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
using namespace tidepool;

struct Batch {
  NDArray features, labels;
};

int main() {
  RingWorkspace ring("prefetch", WorkspaceConfig::Ring(4));
  RingChannel<Batch> channel(ring);

  std::jthread producer([&](std::stop_token stop) {
    try {
      for (int i = 0; i < 1000; ++i) {
        std::optional<RingSlotScope> slot = RingSlotScope::Open(ring, stop);  // waits when full
        if (!slot) break;                                                     // stopped
        NDArray raw = Full({128, 784}, i);  // what is made here lives in the slot
        Batch batch{raw * (1.0 / 255), Full({128}, i % 10)};
        raw.Close();  // a temporary: its bytes are used again
        if (!channel.Push(slot->Commit(), std::move(batch))) break;
      }
      channel.Close();
    } catch (...) {
      channel.Fail(std::current_exception());  // the reader gets it
    }
  });

  NDArray total = Zeros({128}, DType::kFloat32, Place::Heap());
  NDArray first;
  while (std::optional<RingChannel<Batch>::Item> item = channel.Pop()) {
    const Batch& batch = item->value;                          // legal here: the item holds a lease
    if (!first.is_defined()) first = batch.features.Detach();  // a copy that outlives the slot
    total += batch.labels;
  }  // the item goes, its slot is free

  const RingStats s = ring.stats();
  std::printf("sum of labels %.0f, first feature %.0f\n", total.At<float>({0}),
              first.At<float>({0, 0}));
  std::printf("%zu batches in %d slots of %zu bytes\n", static_cast<size_t>(s.committed),
              ring.slots(), s.slot_bytes);
  std::printf("%zu requests from the slots, %zu outside, all of them in the first batch\n",
              static_cast<size_t>(s.hits), static_cast<size_t>(s.spills));
}
