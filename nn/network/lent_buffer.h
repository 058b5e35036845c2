// A buffer over memory that is somebody else's and comes and goes: its views stay, and can be read
// and written while the memory is there.
//
// Nothing is counted: the memory is its owner's in the ledger. Threads: one sets it; else as
// Buffer.
#ifndef TIDEPOOL_NN_NETWORK_LENT_BUFFER_H_
#define TIDEPOOL_NN_NETWORK_LENT_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tidepool/memory/buffer.h"

namespace tidepool::nn {

class LentBuffer {
 public:
  // Where the bytes are while they are not there, for messages.
  enum class From : uint8_t { kRanks, kFile };
  // On the host, of so many bytes, and not there. Bytes may be written by others at any time:
  // nothing that is derived from them is kept.
  LentBuffer(size_t bytes, From from);
  // Views that are left are dead.
  ~LentBuffer();
  LentBuffer(const LentBuffer&) = delete;
  LentBuffer& operator=(const LentBuffer&) = delete;

  // Where it is from here on, of views that are made from here on. `readable_tail`: as Buffer's.
  void set_data(std::byte* data, bool readable_tail);
  // Whether views may be read: else that is kFailedPrecondition.
  void set_there(bool there);
  std::byte* data() const { return handle_->data; }
  const BufferHandle& handle() const { return handle_; }

 private:
  std::atomic<uint64_t> cell_;
  BufferHandle handle_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_LENT_BUFFER_H_
