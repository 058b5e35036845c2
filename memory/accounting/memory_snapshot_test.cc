#include "tidepool/memory/accounting/memory_snapshot.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr MemoryKind kAllocated = MemoryKind::kAllocated;

class Ledger : public ::testing::Test {
 protected:
  MemoryTracker tracker_;
  MemoryOwner& network_ = MemoryOwner::Process().Child("net");
  MemoryOwner& conv_ = network_.Tagged("conv");
  MemoryOwner& loader_ = MemoryOwner::Process().Child("loader");
};

TEST_F(Ledger, OwnersHoldTheirPartAndWhatIsBelow) {
  tracker_.Add(Host(), kAllocated, 100, &network_);
  tracker_.Add(Host(), MemoryKind::kGradientStandard, 40, &conv_);
  tracker_.Add(Host(), kAllocated, 7, &loader_);
  tracker_.Add(Host(), kAllocated, 1);
  const MemorySnapshot snapshot = tracker_.Snapshot();
  EXPECT_EQ(snapshot.Of("process").total.current_bytes, 148);
  EXPECT_EQ(snapshot.Of("process").own_bytes, 1);
  EXPECT_EQ(snapshot.Of("net").total.current_bytes, 140);
  EXPECT_EQ(snapshot.Of("net").own_bytes, 100);
  EXPECT_EQ(snapshot.Of("net")[MemoryKind::kGradientStandard].current_bytes, 40);
  EXPECT_EQ(snapshot.Of("net", "conv").own_bytes, 40);
  EXPECT_EQ(snapshot.Of("loader").total.current_bytes, 7);
  EXPECT_EQ(snapshot.owners.front().owner, "process");
  try {
    snapshot.Of("nobody");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("found no owner [nobody] on host"));
    EXPECT_THAT(error.message(), HasSubstr("net #conv"));
  }
}

TEST_F(Ledger, ReleasesAreTakenOffTheOwnerAndPeaksStay) {
  tracker_.Add(Host(), kAllocated, 100, &conv_);
  tracker_.Add(Host(), kAllocated, -100, &conv_);
  tracker_.Add(Host(), kAllocated, 30, &network_);
  const OwnerMemory net = tracker_.Snapshot().Of("net");
  EXPECT_EQ(net.total.current_bytes, 30);
  EXPECT_EQ(net.total.peak_bytes, 100);
  EXPECT_EQ(net[kAllocated].peak_bytes, 100);
}

TEST_F(Ledger, AnAccountsMemoryIsItsOwners) {
  MemoryOwner& step = network_.Child("workspace step");
  MemoryAccount account(Host(), &step);
  tracker_.Register(&account);
  tracker_.AddOwned(&account, 1000);
  account.AddUsed(700);
  account.SubUsed(600);
  MemorySnapshot snapshot = tracker_.Snapshot();
  EXPECT_EQ(snapshot.Of("net/workspace step")[kAllocated].current_bytes, 100);
  EXPECT_EQ(snapshot.Of("net/workspace step")[kAllocated].peak_bytes, 700);
  EXPECT_EQ(snapshot.Of("net")[MemoryKind::kUnreferenced].current_bytes, 900);
  account.SubUsed(100);
  tracker_.Unregister(&account);
  snapshot = tracker_.Snapshot();
  EXPECT_EQ(snapshot.Of("net").total.current_bytes, 0);
  EXPECT_EQ(snapshot.Of("net").total.peak_bytes, 1000);
}

TEST_F(Ledger, BytesByTagAcrossOwners) {
  tracker_.Add(Host(), kAllocated, 5, &network_.Tagged("imported"));
  tracker_.Add(Host(), kAllocated, 6, &loader_.Tagged("imported"));
  EXPECT_EQ(tracker_.Snapshot().TaggedBytes("imported"), 11);
  EXPECT_EQ(tracker_.Snapshot().TaggedBytes("other"), 0);
}

TEST_F(Ledger, DifferencesNameWhatMoved) {
  tracker_.Add(Host(), kAllocated, 100, &network_);
  const MemorySnapshot before = tracker_.Snapshot();
  EXPECT_TRUE(Difference(before, tracker_.Snapshot()).empty());
  tracker_.Add(Host(), MemoryKind::kExternal, 64, &loader_);
  tracker_.Add(Host(), kAllocated, -40, &network_);
  tracker_.CountSystemRelease();
  const MemoryDifference difference = Difference(before, tracker_.Snapshot());
  EXPECT_EQ(difference.CurrentBytes(Host(), MemoryKind::kExternal), 64);
  EXPECT_EQ(difference.CurrentBytes(Host(), kAllocated), -40);
  EXPECT_EQ(difference.CurrentBytes(Host(), MemoryKind::kWorkspace), 0);
  EXPECT_EQ(difference.system_releases, 1);
  int64_t loader = 0;
  for (const auto& line : difference.lines) {
    if (line.owner == "loader") loader += line.current_bytes;
  }
  EXPECT_EQ(loader, 64);
  EXPECT_THAT(difference.ToString(), HasSubstr("-40"));
  EXPECT_THAT(difference.ToString(), HasSubstr("loader"));
  EXPECT_THAT(difference.ToString(), Not(HasSubstr("gradient")));
  EXPECT_EQ(Difference(before, before).ToString(), "nothing changed\n");
}

TEST_F(Ledger, ADeviceThatIsNewIsADifferenceFromNothing) {
  const MemorySnapshot before = tracker_.Snapshot();
  const Device device{DeviceType::Named("simulated"), 2};
  tracker_.Add(device, kAllocated, 9);
  EXPECT_EQ(Difference(before, tracker_.Snapshot()).CurrentBytes(device, kAllocated), 9);
}

TEST_F(Ledger, JsonHoldsWhatTheSnapshotHolds) {
  MemoryOwner& odd = MemoryOwner::Process().Child("quote \" and \xff");
  tracker_.Add(Host(), kAllocated, 123, &odd.Tagged("t"));
  tracker_.CountSystemAllocation();
  const MemorySnapshot snapshot = tracker_.Snapshot();
  const auto json = nlohmann::json::parse(snapshot.ToJson());
  EXPECT_EQ(json["system_allocations"], 1);
  EXPECT_EQ(json["devices"][0]["device"], "host");
  EXPECT_EQ(json["devices"][0]["kinds"]["allocated"]["current_bytes"], 123);
  EXPECT_EQ(json["devices"][0]["kinds"].size(), kMemoryKinds);
  EXPECT_EQ(json["devices"][0]["total"]["peak_bytes"], 123);
  ASSERT_EQ(json["owners"].size(), snapshot.owners.size());
  EXPECT_EQ(json["owners"][2]["tag"], "t");
  EXPECT_EQ(json["owners"][2]["own_bytes"], 123);
  const auto change =
      nlohmann::json::parse(Difference(MemoryTracker().Snapshot(), snapshot).ToJson());
  EXPECT_EQ(change["changes"][0]["current_bytes"], 123);
  EXPECT_EQ(change["system_allocations"], 1);
}

TEST_F(Ledger, TablesHaveALinePerOwner) {
  tracker_.Add(Host(), kAllocated, 100, &conv_);
  tracker_.Add(Host(), MemoryKind::kExternal, 200, &conv_);
  EXPECT_THAT(tracker_.Snapshot().OwnersToString(), HasSubstr("net #conv"));
  EXPECT_THAT(tracker_.Snapshot().OwnersToString(), HasSubstr("external 200, allocated 100"));
}

TEST_F(Ledger, JsonForWhichThereIsNoMemoryIsAnException) {
  tracker_.Add(Host(), kAllocated, 123, &conv_);
  const MemorySnapshot snapshot = tracker_.Snapshot();
  const MemoryDifference difference = Difference(MemoryTracker().Snapshot(), snapshot);
  const std::string expected[] = {snapshot.ToJson(), difference.ToJson()};
  int faults = 0;
  for (bool done = false; !done; ++faults) {
    std::string text[2];
    until_fault = faults;
    done = Try([&] {
      text[0] = snapshot.ToJson();
      text[1] = difference.ToJson();
    });
    if (!text[0].empty()) {
      EXPECT_EQ(text[0], expected[0]);
    }
    if (done) {
      EXPECT_EQ(text[1], expected[1]);
    }
  }
  EXPECT_GT(faults, 5);
}

TEST(MemorySnapshotTest, TiersAreInTheTableAndTheJson) {
  MemorySnapshot snapshot;
  EXPECT_THAT(snapshot.ToString(), Not(HasSubstr("spill tier")));
  EXPECT_EQ(nlohmann::json::parse(snapshot.ToJson())["spill_tiers"], nlohmann::json::array());
  snapshot.spill_tiers = {
      {.device = Host(),
       .waiting_bytes = 300,
       .peak_bytes = 700,
       .counters = {.came = 9,
                    .came_bytes = 900,
                    .came_nanoseconds = 1'500'000'000,
                    .returned = 4,
                    .returned_bytes = 400,
                    .returned_nanoseconds = 250'000'000,
                    .went_on = 2,
                    .went_on_bytes = 200,
                    .passed_by = 5}},
      {.device = {DeviceType::Named("simulated"), 2}, .counters = {.passed_by = 1}}};
  EXPECT_THAT(snapshot.ToString(),
              HasSubstr("\nspill tier host: 300 bytes wait there, at most 700; 9 came (900 bytes, "
                        "waited for 1.500 s), 4 returned (400 bytes, 0.250 s), 2 went on (200 "
                        "bytes), 5 passed by\nspill tier simulated:2: 0 bytes"));
  const auto json = nlohmann::json::parse(snapshot.ToJson());
  EXPECT_EQ(json["spilled"]["tier"], "file");
  ASSERT_EQ(json["spill_tiers"].size(), 2u);
  EXPECT_EQ(json["spill_tiers"][0], nlohmann::json({{"tier", "host"},
                                                    {"waiting_bytes", 300},
                                                    {"peak_bytes", 700},
                                                    {"came", 9},
                                                    {"came_bytes", 900},
                                                    {"came_nanoseconds", 1'500'000'000},
                                                    {"returned", 4},
                                                    {"returned_bytes", 400},
                                                    {"returned_nanoseconds", 250'000'000},
                                                    {"went_on", 2},
                                                    {"went_on_bytes", 200},
                                                    {"passed_by", 5}}));
  EXPECT_EQ(json["spill_tiers"][1]["tier"], "simulated:2");
}

// A line of a table or dump is one line, whatever users call things.
TEST_F(Ledger, TablesHaveALineForEachOwnerWhateverItIsCalled) {
  MemoryOwner& odd = MemoryOwner::Process().Child("odd\nhost 7").Tagged("a\ttag\n");
  tracker_.Add(Host(), kAllocated, 5, &odd);
  const MemorySnapshot snapshot = tracker_.Snapshot();
  const MemoryDifference difference = Difference(MemoryTracker().Snapshot(), snapshot);
  for (const std::string& text : {snapshot.OwnersToString(), difference.ToString()}) {
    EXPECT_THAT(text, HasSubstr("odd\\nhost 7 #a\\ttag\\n "));
    EXPECT_THAT(text, Not(HasSubstr("odd\n")));
    EXPECT_THAT(text, Not(HasSubstr("tag\n")));
  }
  EXPECT_EQ(snapshot.Of("odd\nhost 7", "a\ttag\n").own_bytes, 5);
}

}  // namespace
}  // namespace tidepool
