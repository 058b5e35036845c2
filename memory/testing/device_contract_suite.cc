#include "tidepool/memory/testing/device_contract_suite.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kMostProblems = 5;

struct Check {
  const char* name;
  void (*run)(DeviceCheck&);
};
constexpr Check kChecks[] = {
    {"describes_itself", &CheckDescription},
    {"reserves_aligned_ranges", &CheckRanges},
    {"commits_and_decommits_pieces", &CheckCommits},
    {"gives_aligned_blocks", &CheckBlocks},
    {"tails_are_readable", &CheckTails},
    {"refusals_change_nothing", &CheckRefusals},
    {"takes_everything_back", &CheckGivingBack},
    {"copies_any_size_and_offset", &CheckCopies},
    {"copies_are_done_when_they_return", &CheckCopiesAreDone},
    {"copies_of_nothing", &CheckCopiesOfNothing},
    {"queued_copies_begin_after_their_points", &CheckPoints},
    {"kernels_and_copies_keep_their_order", &CheckOrderWithKernels},
    {"copies_and_fills_come_behind_all_work", &CheckOrderBehindAll},
    {"memory_given_back_in_flight", &CheckGivingBackInFlight},
    {"memory_is_used_again_behind_its_uses", &CheckBlocksInFlight},
    {"pinned_host_memory", &CheckPinnedHost},
    {"several_queues", &CheckQueues},
    {"copies_to_a_peer_pass_in_order", &CheckPeerCopies},
    {"several_threads", &CheckThreads},
    {"workspaces", &CheckWorkspaces},
    {"rings", &CheckRings},
    {"pools_of_workspaces", &CheckPools},
    {"mirrors", &CheckMirrors},
    {"budgets", &CheckBudgets},
};

// But for what a device keeps for next times.
int64_t LedgerBytes(Device device) {
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    if (memory.device == device) {
      return memory.total.current_bytes - memory[MemoryKind::kUnreferenced].current_bytes;
    }
  }
  return 0;
}

class ContractTest : public ::testing::Test {
 public:
  ContractTest(const DeviceContract& contract, const char* check)
      : contract_(contract), check_(check) {}
  void TestBody() override {
    if (FindDeviceProvider(contract_.device) == nullptr) {
      GTEST_SKIP() << "there is no device " << DeviceName(contract_.device);
    }
    if (contract_.before != nullptr) contract_.before();
    for (const std::string& problem : DeviceProblems(contract_, check_)) ADD_FAILURE() << problem;
    if (contract_.after != nullptr) contract_.after();
  }

 private:
  const DeviceContract contract_;
  const char* const check_;
};

}  // namespace

Bytes PatternOf(uint64_t seed, size_t bytes) {
  Bytes pattern(bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  size_t at = 0;
  for (; at + sizeof(state) <= bytes; at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(pattern.data() + at, &state, sizeof(state));
  }
  for (; at < bytes; ++at) pattern[at] = static_cast<std::byte>(state >> (at % 8 * 8) ^ at);
  return pattern;
}

bool DeviceCheck::Expect(bool holds, const std::string& problem) {
  if (holds) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  if (problems_.size() < kMostProblems)
    problems_.push_back(absl::StrCat(device.name(), ": ", problem));
  return false;
}

bool DeviceCheck::ExpectSame(const Bytes& found, const Bytes& expected, const std::string& what) {
  const auto [at, other] =
      std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  if (at == found.end() && other == expected.end()) return true;
  return Expect(false,
                absl::StrCat(what, ": byte ", at - found.begin(), " of ", expected.size(), " is ",
                             static_cast<int>(*at), ", expected ", static_cast<int>(*other)));
}

bool DeviceCheck::ExpectOnDevice(const std::byte* at, const Bytes& expected,
                                 const std::string& what) {
  Bytes found(expected.size());
  device.CopyToHost(found.data(), at, found.size());
  return ExpectSame(found, expected, what);
}

std::vector<std::string> DeviceContractChecks() {
  std::vector<std::string> names;
  for (const Check& check : kChecks) names.push_back(check.name);
  return names;
}

std::vector<std::string> DeviceProblems(const DeviceContract& contract, const std::string& name) {
  const Check* const found = std::find_if(std::begin(kChecks), std::end(kChecks),
                                          [&](const Check& check) { return name == check.name; });
  if (found == std::end(kChecks)) {
    ThrowInvalidArgument(absl::StrCat("device contract: there is no check \"", name, "\""));
  }
  GetDeviceProvider(contract.device, "device contract");
  DeviceCheck check(contract);
  const int64_t before = LedgerBytes(contract.device);
  try {
    found->run(check);
  } catch (const std::exception& error) {
    check.Expect(false, absl::StrCat("ended early: ", error.what()));
  }
  // Of the host's memory many have some, records among them.
  if (contract.device != Host()) {
    const int64_t left = LedgerBytes(contract.device) - before;
    check.Expect(left == 0, absl::StrCat(left, " bytes are on the ledger still"));
  }
  return check.TakeProblems();
}

bool RegisterDeviceContract(const DeviceContract& contract) {
  std::string name = contract.name.empty() ? DeviceName(contract.device) : contract.name;
  std::replace(name.begin(), name.end(), ':', '_');
  for (const Check& check : kChecks) {
    ::testing::RegisterTest(absl::StrCat("DeviceContract_", name).c_str(), check.name, nullptr,
                            nullptr, __FILE__, __LINE__,
                            [contract, name = check.name]() -> ::testing::Test* {
                              return new ContractTest(contract, name);
                            });
  }
  return true;
}

}  // namespace tidepool
