// What the number of a stream says about order. Of dlpack.cc.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_

#include <cstdint>
#include <optional>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/io/dlpack_devices.h"

namespace tidepool::internal {

inline constexpr int64_t kNoOrder = -1;  // the number of a stream that says so

class DLPackStream {
 public:
  // Throws kInvalidArgument for a number that there cannot be, and as DeviceQueue::Adopt. `who`: for messages.
  DLPackStream(const char* who, const DLPackDevice& entry, Device device,
               std::optional<int64_t> number);

  // Of a buffer that is given away: what the stream is given to do from here on comes behind our uses.
  void GiveAway(Buffer* buffer, bool writes) const;
  // It is done there with what it was given to do by now.
  void TakeBack(Buffer* buffer, bool writes) const noexcept;
  // Before a buffer is made of what comes in: its queues.
  void TakeOver(ImportedMemory* memory) const;

 private:
  const Device device_;
  bool host_waits_ = false;           // there is no stream to order
  std::optional<DeviceQueue> queue_;  // in whose order the stream's work is
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_
