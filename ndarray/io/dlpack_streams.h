// What the number of a stream says about order. Of dlpack.cc.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_

#include <cstdint>
#include <optional>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/io/dlpack_devices.h"

namespace tidepool::internal {

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
  bool has_queue() const { return queue_.has_value(); }

 private:
  const Device device_;
  bool host_waits_ = false;            // there is no stream to order
  std::optional<DeviceQueue> queue_;   // whose end is behind the stream's work
  // The calling thread's default stream of CUDA, which means another one on each thread: it is put in order in the
  // call alone. The legacy default stream, which waits for those of all threads, stands for it.
  bool is_threads_ = false;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_STREAMS_H_
