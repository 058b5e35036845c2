#include "tidepool/memory/workspace/ring_slot_table.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// A table of `slots` idle slots, the first one to be taken first.
class Fixture {
 public:
  explicit Fixture(WorkspaceConfig of_ring)
      : config(std::move(of_ring)), ring{nullptr, id, config, Host()}, table(id, config) {
    RingSlot* chain = nullptr;
    for (int i = 0; i < config.ring_slots; ++i) {
      RingSlot* slot = Make(/*temporary=*/false);
      slot->next_on_shelf.set(std::exchange(chain, slot));
    }
    table.PutBack(chain, nullptr);
  }

  RingSlot* Make(bool temporary) {
    const int number = table.Announce(temporary);
    return table.Add(std::make_unique<RingSlot>(ring, number, temporary));
  }
  RingSlot* Open() {
    RingSlot* slot = table.TakeIdle();
    table.Open(slot);
    return slot;
  }
  RingSlot* Lease(const std::string& tag) {
    RingSlot* slot = Open();
    table.Lease(slot, tag);
    return slot;
  }

  const std::string id = "r";
  const WorkspaceConfig config;
  RingSlot::Ring ring;
  RingSlotTable table;
};

TEST(RingSlotTable, TemporarySlotsGoInAnyOrder) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.policy_ring_full = RingFullPolicy::kSpill;
  Fixture f(config);
  f.Open();
  std::vector<RingSlot*> open;
  uint32_t turn = 1;
  for (int round = 0; round < 300; ++round) {
    if (round < 20 || round % 2 == 0) {
      open.push_back(f.Make(/*temporary=*/true));
      f.table.Open(open.back());
    } else {
      turn = turn * 1664525 + 1013904223;
      std::swap(open[(turn >> 8) % open.size()], open.back());
      RingSlot* removed = nullptr;
      EXPECT_TRUE(f.table.TakeBack(open.back(), &removed));
      ASSERT_EQ(removed, open.back());
      delete removed;
      open.pop_back();
    }
    ASSERT_EQ(f.table.size(), open.size() + 2);
    for (size_t i = 0; i < f.table.size(); ++i) ASSERT_EQ(f.table[i].place, i);
  }
  for (RingSlot* slot : open) {
    RingSlot* removed = nullptr;
    f.table.TakeBack(slot, &removed);
    delete removed;
  }
}

TEST(RingSlotTable, TheLastOneReturnedIsTakenFirst) {
  Fixture f(WorkspaceConfig::Ring(3));
  RingSlot* first = f.Open();
  RingSlot* second = f.Lease("b");
  EXPECT_EQ(first->number, 0);
  EXPECT_EQ(second->generation(), 2);
  EXPECT_EQ(f.table.DescribeTaken(),
            "slot 0 generation 1 open by this thread, slot 1 generation 2 leased [b]");
  EXPECT_TRUE(f.table.TakeBack(first, nullptr));
  EXPECT_FALSE(f.table.TakeBack(second, nullptr));
  EXPECT_EQ(f.table.Describe(*second), "slot 1 idle");
  EXPECT_EQ(f.Open(), second);
  EXPECT_EQ(f.Open(), first);
  EXPECT_EQ(f.table.idle(), 1);
  f.Open();
  EXPECT_TRUE(f.table.is_full());
}

TEST(RingSlotTable, ReadersKeepWhatTheyTookFromTheSameChannel) {
  WorkspaceConfig config = WorkspaceConfig::Ring(4);
  config.ring_max_kept = 1;
  Fixture f(config);
  const int channel = 0, other_channel = 0;
  RingSlot* slots[3] = {f.Lease("a"), f.Lease("b"), f.Lease("c")};
  f.table.SetReader(slots[0], &channel);
  f.table.SetReader(slots[1], &other_channel);
  std::thread([&] {
    f.table.SetReader(slots[2], &channel);
    EXPECT_FALSE(f.table.KeepReadersSlots(&other_channel));
  }).join();
  EXPECT_TRUE(f.table.KeepReadersSlots(&channel));
  EXPECT_EQ(f.table.CountKept(), 1);
  EXPECT_FALSE(f.table.too_many_kept());
  try {
    f.table.Keep(slots[2], "mine");
    ADD_FAILURE() << "two are kept";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(f.table.Describe(*slots[2]), "slot 2 generation 3 leased [c]");
  EXPECT_TRUE(f.table.KeepReadersSlots(&other_channel));
  EXPECT_TRUE(f.table.is_full());  // one is idle, but too many are kept
  EXPECT_TRUE(f.table.is_stuck());
  f.table.TakeBack(slots[0], nullptr);
  EXPECT_FALSE(f.table.is_full());
  f.table.Keep(slots[1], "mine");
  EXPECT_EQ(f.table.Describe(*slots[1]),
            "slot 1 generation 2 leased and kept by this thread [mine]");
  EXPECT_FALSE(f.table.OnlyWhoWaitsCouldRelease());
}

// What is open on a thread that waits for a slot is as good as kept.
TEST(RingSlotTable, SlotsOfThreadsThatWait) {
  Fixture f(WorkspaceConfig::Ring(3));
  RingSlot* mine = f.Open();
  RingSlot* kept = f.Lease("b");
  f.table.Keep(kept, "b");
  std::thread([&] {
    RingSlot* theirs = f.Open();
    EXPECT_TRUE(f.table.is_full());
    f.table.SetWaiting(true);
    EXPECT_EQ(f.table.Describe(*theirs), "slot 2 generation 3 open by this thread");
  }).join();
  EXPECT_EQ(f.table.Describe(f.table[2]),
            "slot 2 generation 3 open by another thread that waits for a slot");
  EXPECT_FALSE(f.table.is_stuck());
  EXPECT_TRUE(f.table.OnlyWhoWaitsCouldRelease());
  f.table.SetWaiting(true);
  EXPECT_TRUE(f.table.is_stuck());
  EXPECT_TRUE(f.table.is_stuck_for_readers());
  std::thread([&] {
    EXPECT_TRUE(f.table.OnlyWhoWaitsCouldRelease());
    f.table.Keep(kept, "c");  // whoever keeps it runs
    EXPECT_EQ(f.table.Describe(*kept), "slot 1 generation 2 leased and kept by this thread [c]");
  }).join();
  EXPECT_FALSE(f.table.OnlyWhoWaitsCouldRelease());
  f.table.SetWaiting(false);
  EXPECT_FALSE(f.table.is_stuck_for_readers());
  f.table.TakeBack(mine, nullptr);
  EXPECT_FALSE(f.table.is_stuck());
}

TEST(RingSlotTable, TemporarySlotsCountFromTheirAnnouncement) {
  WorkspaceConfig config = WorkspaceConfig::Ring(1);
  config.policy_ring_full = RingFullPolicy::kSpill;
  config.ring_max_temporary = 2;
  Fixture f(config);
  f.Lease("");
  EXPECT_EQ(f.table.Announce(/*temporary=*/true), 1);
  EXPECT_EQ(f.table.Announce(/*temporary=*/true), 2);
  EXPECT_TRUE(f.table.is_full());
  f.table.CannotAdd(/*temporary=*/true);
  EXPECT_FALSE(f.table.is_full());
  RingSlot* slot = f.table.Add(std::make_unique<RingSlot>(f.ring, 1, /*temporary=*/true));
  f.table.Open(slot);
  RingSlot* removed = nullptr;
  f.table.TakeBack(slot, &removed);
  EXPECT_EQ(removed, slot);
  EXPECT_EQ(f.table.size(), 1);
  delete removed;
}

TEST(RingSlotTable, ClosedItRemovesWhatComesBack) {
  Fixture f(WorkspaceConfig::Ring(3));
  RingSlot* leased = f.Lease("");
  RingSlot* removed = nullptr;
  f.table.Close(&removed);
  EXPECT_EQ(f.table.size(), 1);
  f.table.TakeBack(leased, &removed);
  EXPECT_EQ(f.table.size(), 0);
  int count = 0;
  while (removed != nullptr) {
    delete std::exchange(removed, removed->next_on_shelf.get());
    ++count;
  }
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace tidepool
