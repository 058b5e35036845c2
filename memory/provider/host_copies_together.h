// Several copies from the host in one call, for providers of devices that have such a call.
#ifndef TIDEPOOL_MEMORY_PROVIDER_HOST_COPIES_TOGETHER_H_
#define TIDEPOOL_MEMORY_PROVIDER_HOST_COPIES_TOGETHER_H_

#include <cstddef>

#include "absl/types/span.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

// A provider that has it derives from this beside DeviceProvider.
class HostCopiesTogether {
 public:
  // One copy.
  struct Copy {
    std::byte* to;               // in memory of the device
    const std::byte* from_host;  // stays as it is until the point has passed
    size_t bytes;                // at least one
  };

  // The provider's, or null.
  static HostCopiesTogether* Of(DeviceProvider& device) {
    return dynamic_cast<HostCopiesTogether*>(&device);
  }

  // As DeviceProvider::QueueCopyFromHost for each of them, but all begin when all points of `after` have passed, and the
  // point that is returned is behind all. The copies are of memory that does not overlap. Throws as that; nothing of what
  // was copied counts then. Threads: any. Cost: that of one copy's calls, and waits for the points.
  virtual QueuePoint QueueCopiesFromHost(absl::Span<const Copy> copies,
                                         absl::Span<const QueuePoint> after) = 0;

 protected:
  ~HostCopiesTogether() = default;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_HOST_COPIES_TOGETHER_H_
