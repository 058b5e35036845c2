// For programs on emulated devices: the machine has an emulated NCCL from the start.
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"

namespace tidepool {
namespace {

[[maybe_unused]] const bool is_present = [] {
  EmulatedNcclLibrary::Get().set_kind(EmulatedNccl::kPresent);
  return true;
}();

}  // namespace
}  // namespace tidepool
