// Arrays of ring slots: legal on any thread while the slot is leased, refused everywhere afterwards.
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Batch {
  SlotLease lease;  // first: it goes last
  NDArray features;
};

Batch Make(RingWorkspace& ring, double value) {
  RingSlotScope slot(ring);
  Batch batch;
  batch.features = Full({8, 4}, value);
  batch.lease = slot.Commit();
  return batch;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    return error.message();
  }
  return "nothing was thrown";
}

// What a reader may do with an array; each must be refused once its slot is released.
std::vector<std::pair<const char*, std::function<void(NDArray&)>>> Uses() {
  return {
      {"element",
       [](NDArray& x) {
         x.At<float>({0, 0});
       }},
      {"data", [](NDArray& x) { x.data<float>(); }},
      {"mutable data", [](NDArray& x) { x.mutable_data<float>(); }},
      {"to vector", [](NDArray& x) { x.ToVector<float>(); }},
      {"dup", [](NDArray& x) { x.Dup(); }},
      {"detach", [](NDArray& x) { x.Detach(); }},
      {"leverage", [](NDArray& x) { x.Leverage(); }},
      {"leverage_or_detach", [](NDArray& x) { x.LeverageOrDetach("prefetch"); }},
      {"migrate", [](NDArray& x) { x.Migrate(true); }},
      {"copy", [](NDArray& x) { x.CopyTo(Place::Heap()); }},
      {"slice", [](NDArray& x) { x.Slice(0, 0, 2).Dup(); }},
      {"print", [](NDArray& x) { x.ToString(); }},
  };
}

TEST(RingArrays, AreLegalAnywhereWhileLeasedAndRefusedAfterwards) {
  RingWorkspace ring("prefetch", WorkspaceConfig::Ring(2));
  for (const auto& [name, use] : Uses()) {
    SCOPED_TRACE(name);
    Batch batch = Make(ring, 3);
    const uint64_t generation = batch.lease.generation();
    const std::string made = "made in generation " + std::to_string(generation);
    std::thread([&, &use = use] {
      EXPECT_EQ(MessageOf([&] { use(batch.features); }), "nothing was thrown");
      batch.lease.Release();
      EXPECT_THAT(MessageOf([&] { use(batch.features); }),
                  AllOf(HasSubstr("leaked workspace pointer from workspace [prefetch]"),
                        HasSubstr(made), HasSubstr("its ring slot was released"),
                        HasSubstr("free after generation " + std::to_string(generation))));
      const Batch next = Make(ring, 4);
      EXPECT_THAT(MessageOf([&] { use(batch.features); }),
                  AllOf(HasSubstr("outdated workspace pointer"), HasSubstr(made),
                        HasSubstr("in generation " + std::to_string(generation + 1))));
    }).join();
  }
}

TEST(RingArrays, MoveIntoAndOutOfSlots) {
  RingWorkspace ring("prefetch", WorkspaceConfig::Ring(2));
  Workspace step("step", WorkspaceConfig::Training());
  Batch batch;
  {
    RingSlotScope slot(ring);
    NDArray x = Full({4}, 5);
    WorkspaceScope inner(step);
    EXPECT_EQ(Full({4}, 1).buffer()->owner->WorkspaceId(), "step");
    batch.features = (Full({4}, 2)).LeverageTo("prefetch");
    EXPECT_EQ(batch.features.buffer()->owner->WorkspaceId(), "prefetch");
    inner.Close();
    batch.lease = slot.Commit();
  }
  const NDArray kept = batch.features.Detach();
  {
    WorkspaceScope scope(step);
    const NDArray migrated = batch.features.Migrate();
    EXPECT_EQ(migrated.buffer()->owner->WorkspaceId(), "step");
    EXPECT_THAT(migrated.ToVector<float>(), Each(2.0f));
    // The slot is not open: nothing new can be put there.
    EXPECT_THAT(MessageOf([&] { kept.LeverageTo("prefetch"); }), "nothing was thrown");
    EXPECT_THROW(migrated.LeverageTo("prefetch"), Error);
  }
  batch = Batch();
  EXPECT_THAT(kept.ToVector<float>(), Each(2.0f));
}

}  // namespace
}  // namespace tidepool
