// The contract of a device's memory (provider/device_provider.h), as tests: what every
// DeviceProvider keeps, and that workspaces, rings, pools of workspaces, mirrors and budgets work
// on it, with every byte compared. A backend's memory test is this file, linked with the suite and
// the backend itself:
//
//   #include "tidepool/memory/testing/device_contract_suite.h"
//
//   namespace tidepool {
//   const bool registered = RegisterDeviceContract({
//       .device = DeviceNamed("mine:0"),
//       .capacity_bytes = size_t{1} << 30,          // so that refusals are tried
//       .queue_fill = &QueueMyFill,                 // so that the order of kernels and copies is
//       .queue_fill_in = &QueueMyFillIn,            // the same of its compute queues, where it has several
//       .peer = DeviceNamed("mine:1"),              // so that its copies to that are, where it has any
//   });
//   }  // namespace tidepool
//
// Tests made: DeviceContract_<name>.<check> for each of DeviceContractChecks(). What the contract
// does not give (a capacity, a kernel) and what the device does not have (memory that the host
// reads, page-locked memory, a second queue) is not tried, nor is a device that fails. Everything is given back at
// the end of a check. Where there is no such device (a driver and no hardware) the tests are
// skipped. Each check makes at most some thousand copies of up to 4 MiB, in 64 MiB of the device; where its
// capacity is known all of that is taken for a moment.
#ifndef TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_SUITE_H_
#define TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_SUITE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"

namespace tidepool {

struct DeviceContract {
  Device device = Host();
  std::string name = "";  // of the tests; empty: the device's, "mine_0"
  // At most this much can be committed and allocated together; 0: nobody knows, and nothing is
  // exhausted.
  size_t capacity_bytes = 0;
  // Queues a kernel that sets bytes of the device, as the device's kernels are queued. Null: none.
  void (*queue_fill)(std::byte* to, std::byte value, size_t bytes) = nullptr;
  // The same in that compute queue, which is open. Null: its queues are not tried.
  void (*queue_fill_in)(int queue, std::byte* to, std::byte value, size_t bytes) = nullptr;
  // Another one of its type, to which it copies directly (memory/device_copy.h). The host: that is not tried.
  Device peer = Host();
  // Run around each test, not by DeviceProblems; null: nothing.
  void (*before)() = nullptr;
  void (*after)() = nullptr;
  uint64_t seed = 20240229;
};

// Call from a static initialiser of the test. Always true.
bool RegisterDeviceContract(const DeviceContract& contract);

// What the tests report, one string per failure: for the test of the suite itself. Unknown checks
// throw kInvalidArgument.
std::vector<std::string> DeviceContractChecks();
std::vector<std::string> DeviceProblems(const DeviceContract& contract, const std::string& check);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_SUITE_H_
