// HeldBytes: keeps the bytes of a buffer for code that has a bare pointer to them, such as another
// library, and is not asked when the buffer is closed.
//
// Closing the buffer, or the manager it belongs to, makes its handles dead at once as ever; its bytes are
// given back, and come off the ledger, when the last hold ends. Only for memory outside of workspaces:
// a cycle's end waits for nobody. That code may write as long as it holds: Buffer::MayBeWrittenOutside()
// says so, and the version is raised when the last hold ends.
//
// Threads: may be made and ended on any thread, one hold by one thread at a time. Cost: a lock and an
// entry in a table. Closing buffers that nobody holds pays the look at a flag.
#ifndef TIDEPOOL_MEMORY_HELD_BYTES_H_
#define TIDEPOOL_MEMORY_HELD_BYTES_H_

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/sync/hold_registry.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

class HeldBytes {
 public:
  // Of a buffer outside of workspaces. Whether it is alive is to be asked afterwards: if so, its bytes
  // stay to the end of the hold.
  explicit HeldBytes(BufferHandle buffer);
  ~HeldBytes();
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

 private:
  BufferHandle buffer_;
};

namespace internal {

using BufferHolds = HoldRegistry<StdSync, Buffer>;

bool LeaveHeldToHolds(Buffer* buffer) noexcept;
// True when the bytes of a closed buffer are held: they go with the last hold.
inline bool LeaveToHolds(Buffer* buffer) noexcept {
  return BufferHolds::MayBeHeld(buffer) && LeaveHeldToHolds(buffer);
}

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_HELD_BYTES_H_
