// That the suite finds a device that breaks any one promise of DeviceProvider, always or one time in ten: a fault for each
// method, and for each order that it keeps. Each is found by the check that is named.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/testing/device_contract_broken_memory.h"
#include "tidepool/memory/testing/device_contract_broken_order.h"
#include "tidepool/memory/testing/device_contract_faults.h"

namespace tidepool {
namespace {

constexpr char kOrder[] = "copies_and_fills_come_behind_all_work";
constexpr char kQueues[] = "several_queues";
constexpr char kPeers[] = "copies_to_a_peer_pass_in_order";
constexpr char kInFlight[] = "memory_is_used_again_behind_its_uses";
constexpr char kDescription[] = "describes_itself";
constexpr char kCommits[] = "commits_and_decommits_pieces";
constexpr char kBlocks[] = "gives_aligned_blocks";
constexpr char kRefusals[] = "refusals_change_nothing";
constexpr char kGivingBack[] = "takes_everything_back";
constexpr char kCopies[] = "copies_any_size_and_offset";
constexpr char kPinned[] = "pinned_host_memory";

struct Fault {
  const char* name;
  std::unique_ptr<Faulty> (*make)(bool always);
  std::vector<std::string> checks;
  bool may_be_rare = true;  // else it is a fault only where it always happens
};

template <typename F>
std::unique_ptr<Faulty> Make(bool always) {
  return std::make_unique<F>(always);
}

const Fault kFaults[] = {
    {"traits", &Make<TraitsChange>, {kDescription}},
    {"lost", &Make<SaysItIsLost>, {kDescription}, false},
    {"commit_counts_refusals", &Make<CommitCountsRefusals>, {kRefusals}, false},
    {"commit_loses_neighbours", &Make<CommitLosesNeighbours>, {kCommits}},
    {"refused_decommit_loses_bytes", &Make<DecommitLosesBytesWhenRefused>, {kCommits}},
    {"prefault_writes", &Make<PrefaultWrites>, {kCommits}},
    {"blocks_in_a_range", &Make<BlocksInARange>, {kBlocks}, false},
    {"unaligned_blocks", &Make<UnalignedBlocks>, {kBlocks}},
    {"release_writes_beside", &Make<ReleaseWritesBeside>, {kBlocks}},
    {"unreserve_keeps_memory", &Make<UnreserveKeepsMemory>, {kGivingBack}},
    {"decommit_keeps_memory", &Make<DecommitKeepsMemory>, {kGivingBack}},
    {"release_many_keeps_one", &Make<ReleaseManyKeepsOne>, {kGivingBack}},
    {"release_is_early", &Make<ReleaseIsEarly>, {kInFlight}},
    {"release_many_is_early", &Make<ReleaseManyIsEarly>, {kInFlight}},
    {"decommit_is_early", &Make<DecommitIsEarly>, {kInFlight}},
    {"unreserve_is_early", &Make<UnreserveIsEarly>, {kInFlight}},
    {"no_earlier_uses", &Make<NoEarlierUses>, {kInFlight}},
    // Rarely forgotten, it shows only where the very block is the next one's and not another that is free.
    {"notes_no_users", &Make<NotesNoUsers>, {kQueues}, false},
    {"copy_from_host_loses_a_rest", &Make<CopyFromHostLosesARest>, {kCopies}, false},
    {"copy_to_host_loses_a_rest", &Make<CopyToHostLosesARest>, {kCopies}, false},
    {"copy_on_device_loses_a_rest", &Make<CopyOnDeviceLosesARest>, {kCopies}, false},
    {"fill_loses_a_rest", &Make<FillLosesARest>, {kCopies}, false},
    {"queued_copy_loses_a_rest", &Make<QueuedCopyLosesARest>, {kCopies}, false},
    {"queued_copy_to_host_loses_a_rest", &Make<QueuedCopyToHostLosesARest>, {kCopies}, false},
    {"queued_copy_passes_early", &Make<QueuedCopyPassesEarly>, {kOrder}},
    {"queued_copy_to_host_passes_early", &Make<QueuedCopyToHostPassesEarly>, {kOrder}},
    {"compute_point_passes_early", &Make<ComputePointPassesEarly>, {kOrder}},
    {"compute_after_is_forgotten", &Make<ComputeAfterIsForgotten>, {kOrder}},
    {"wait_for_returns_early", &Make<WaitForReturnsEarly>, {kOrder}},
    {"has_passed_says_so_early", &Make<HasPassedSaysSoEarly>, {kOrder}},
    {"has_passed_never_says_so", &Make<HasPassedNeverSaysSo>, {kOrder}},
    {"other_queues_pass_early", &Make<OtherQueuesPassEarly>, {kQueues}},
    {"other_queues_are_not_ordered", &Make<OtherQueuesAreNotOrdered>, {kQueues}},
    {"from_host_beside_other_queues",
     &Make<CopyBesideOtherQueues<BesideOtherQueues::Call::kFromHost>>,
     {kQueues}},
    {"to_host_beside_other_queues",
     &Make<CopyBesideOtherQueues<BesideOtherQueues::Call::kToHost>>,
     {kQueues}},
    {"on_device_beside_other_queues",
     &Make<CopyBesideOtherQueues<BesideOtherQueues::Call::kOnDevice>>,
     {kQueues}},
    {"fill_beside_other_queues",
     &Make<CopyBesideOtherQueues<BesideOtherQueues::Call::kFill>>,
     {kQueues}},
    {"one_native_for_all", &Make<OneNativeForAll>, {kQueues}, false},
    {"points_of_closed_queues", &Make<PointsOfClosedQueuesAreForgotten>, {kQueues}},
    {"copies_to_a_peer_pass_in_any_order", &Make<PeerCopiesPassInAnyOrder>, {kPeers}},
    {"copies_to_a_peer_pass_early", &Make<PeerCopiesPassEarly>, {kPeers}},
    {"pinned_blocks_overlap", &Make<PinnedBlocksOverlap>, {kPinned}},
};

class DeviceContractPromises : public DeviceContractOrder,
                               public testing::WithParamInterface<Fault> {};

TEST_P(DeviceContractPromises, AreTried) {
  const Fault& fault = GetParam();
  for (const bool always : {true, false}) {
    if (!always && !fault.may_be_rare) continue;
    Begin();
    SimulatedDevice::Get().set_checks_order(false);
    SimulatedDevice::Get().set_asynchronous(3);
    {
      const std::unique_ptr<Faulty> device = fault.make(always);
      EXPECT_THAT(Failing(fault.checks), testing::Not(testing::IsEmpty()))
          << (always ? "always" : "one time in ten");
      device->Finish();
    }
    SimulatedDevice::Get().set_checks_order(false);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceContractPromises, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace tidepool
