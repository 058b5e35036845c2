// Limits of memory as people write them: in the environment (TIDEPOOL_MEMORY_BUDGET) and in flags.
//
//   2GiB                                 of the process
//   75%, cuda:0=8GiB, host=16GiB         and of devices
//   2GiB, soft 1.5GiB                    a soft one beside it
//   owner loader=64MiB                   of an owner, on the host
//   owner network/mlp on cuda:0=4GiB     by the path that reports have of it
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LIMITS_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/memory/device.h"

namespace tidepool {

class MemoryOwner;

struct MemoryLimit {
  enum class Of : uint8_t { kProcess, kDevice, kOwner };
  Of of = Of::kProcess;
  bool is_soft = false;
  Device device = Host();  // of the last two
  std::string owner;       // names from below the process on, "network/mlp"
  int64_t bytes = 0;       // at least 1

  friend bool operator==(const MemoryLimit&, const MemoryLimit&) = default;
};

// Those of a list with commas between them; blanks around an entry, its = and its parts do not count. Amounts are as in bytes_of_text.h;
// shares are of the machine's memory, so not of other devices. A device type that nobody has named becomes known where a number is with
// it (`npu:0`), as the environment is read before backends are there: a limit of a device that never comes is met by nothing. Throws
// kInvalidArgument, which begins with `what` ("flag --memory_limits"), for what cannot be meant and for two limits of one kind on one
// thing. Of no text there are none.
std::vector<MemoryLimit> MemoryLimitsOfText(absl::string_view what, absl::string_view text);

// The owner of that path, made where there is none. Throws as MemoryOwner::Child.
MemoryOwner& MemoryOwnerAt(absl::string_view path);

// Sets them by MemoryBudget::Global(), one after the other, as its setters do and throw. Others stay.
void SetMemoryLimits(const std::vector<MemoryLimit>& limits);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LIMITS_H_
