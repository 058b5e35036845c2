// Buffer: the record behind every array. It knows where its bytes are, who owns them and when they
// stopped being valid; BufferHandle shares ownership of it.
//
// A buffer of a workspace carries the workspace's stamp of the cycle that made it. The stamp cell
// changes when the cycle ends, so "is this memory still mine?" is one load and one compare, and the
// answer is right for every later cycle and after the workspace is gone.
//
// A buffer may also be owned by a node of the tree of owners (memory/ownership), which closes it when
// the node closes, handles or not; until then the last handle frees it as ever.
//
// Threads: handles may be copied, released and checked on any thread, and a buffer may be closed on
// one while a kernel uses it on another: its bytes stay until the kernel is done, see PinScope
// (pins.h). The bytes are not guarded otherwise; and the end of a workspace's cycle waits for nobody.
#ifndef TIDEPOOL_MEMORY_BUFFER_H_
#define TIDEPOOL_MEMORY_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/sync/owner_word.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

struct Buffer;
class BufferMirror;
struct Loan;
class MemoryOwner;

// Who gave the memory and takes it back: the heap, a workspace, an importer.
class BufferOwner {
 public:
  // The last handle is gone. Called on any thread.
  virtual void Release(Buffer* buffer) noexcept = 0;
  // Gives the bytes of a dead buffer back, or leaves that to Release; the record stays with its
  // handles. Once, on any thread.
  virtual void Close(Buffer* buffer) noexcept = 0;
  // True when nobody but the calling thread can give bytes of this owner back, until it does: a call it
  // makes need not pin them (pins.h).
  virtual bool IsOpenHere() const { return false; }
  // Why a buffer of this owner with that stamp may not be read; empty when it may.
  virtual std::string DescribeStale(uint64_t stamp) const = 0;
  // For whom and where a stale buffer was made, if MemoryTracing was on then; else empty.
  virtual std::string DescribeOrigin(const Buffer&) const { return ""; }
  // The workspace's name; empty for memory outside of workspaces.
  virtual std::string WorkspaceId() const { return ""; }
  // Why there is no host copy of a buffer in device memory; empty when there may be one.
  virtual std::string WhyNoHostCopy() const { return ""; }
  // Of memory on devices of several compute queues (queue_use.h). The one in whose order it is used again.
  virtual int HomeQueue() const { return 0; }
  // A buffer of it is about to be used in that one. Any thread.
  virtual void UsedInQueue(int /*queue*/) noexcept {}
  // A buffer that was used in those (a bit each) goes: where its memory may be used again before the cycle
  // has ended, the home continues behind them. Any thread.
  virtual void GoesAfter(uint16_t /*queues*/) noexcept {}

 protected:
  ~BufferOwner() = default;
};

// Where a buffer stands in the tree of owners (memory/sync/owner_list.h).
struct OwnershipLink {
  OwnerWord<StdSync> node;        // whose it is: a node's, its handles', or closed
  StdSync::Plain<Buffer*> newer;  // neighbours in its node's list
  union {
    StdSync::Plain<Buffer*> older{};
    Buffer* next_free;  // of a workspace's records without handles
  };
  std::atomic<Loan*> loans{nullptr};  // the last one first
};

// One protocol between threads, in four words:
//   link.node  who closes it: whoever moves it to kClosed, once (memory/sync/owner_word.h)
//   stamp      made 0 by that thread; read without order, as whoever must not be wrong pins first
//   care       notes of several threads; kClosePending hands the bytes over (memory/sync/pin_registry.h)
//   closed     how it was closed, for messages and the last release; released with link.newer by a node
// explored in memory/sync. The last handle waits for a node or a borrower that is closing it.
//
// Two cache lines: a million of them are closed as fast as memory brings them.
struct alignas(64) Buffer {
  // Read on every operator call.
  std::atomic<int32_t> references{1};
  // Raised by every write; keys caches of packed weights. Says nothing while MayBeWrittenOutside().
  std::atomic<uint32_t> version{0};

  const std::atomic<uint64_t>* stamp_cell;  // its owner's
  std::atomic<uint64_t> stamp;              // of its cycle: alive while the cell says the same
  std::byte* data;                          // the first byte, on `device`
  size_t bytes;                             // as asked for
  BufferOwner* owner;                       // who takes the memory back
  uint64_t id;                              // never used again by another buffer of the process
  Device device;                            // where the bytes are
  MemoryKind kind;                          // that they are counted under
  // Bits that say what the last release has to do besides giving memory back. Several threads note
  // them at once: by fetch_or and fetch_and alone, but for a buffer of which there is one handle.
  enum Care : uint8_t {
    kInTree = 1,        // link.node is or was other than its handles': a node's, or closed
    kLent = 2,          // is or was lent
    kOwnerGone = 4,     // the owner closed before the borrowers
    kClosePending = 8,  // closed while a kernel used it
    kTraced = 16,
    kMirrored = 32,
    kHeld = 64,       // its bytes, for foreign code (held_bytes.h)
    kOnQueues = 128,  // `queues` is or was not empty, and more than a heap block's first
  };
  std::atomic<uint8_t> care{0};  // of Care

  // Written before anybody else has it.
  bool attached : 1 = false;      // to a workspace
  bool readable_tail : 1 = true;  // kReadableTailBytes behind it can be read
  bool imported : 1 = false;      // its importer has the address too
  bool read_only : 1 = false;  // imported to be read: operators that would write to it are refused
  // Written once, by who moved link.node to kClosed, before the bytes go.
  enum Closed : uint8_t { kNotClosed, kClosedAlone, kClosedByNode };
  std::atomic<uint8_t> closed{kNotClosed};

  std::atomic<uint16_t> queues{0};  // that use it; none: its owner's home (queue_use.h)

  // The owner's.
  struct Request {  // of a workspace
    uint32_t slot;  // its number within the cycle
    size_t bytes;   // rounded up
    void*
        spill;  // null: in the pages by plan or in order; else what gives it back (request_slot.h)
  };
  // Of buffers outside of workspaces.
  struct Outside {
    MemoryOwner* charged_to;                  // the node of the ledger that holds it
    void (*release_imported)(void* context);  // of imported memory, once; null: nothing to call
    void* import_context;                     // what that gets
  };
  union {
    Request request{};  // when attached
    Outside outside;
  };
  OwnershipLink link;  // in the tree of owners

  // The host copy of device memory (memory/mirroring), which all views and handles share. Made at the
  // first access of the host; null before, and always for memory that the host can read.
  std::atomic<BufferMirror*> mirror{nullptr};

  // Every handle of it is dead from here on. Idempotent, from any thread. The bytes of a buffer that
  // a kernel is using on another thread go when that kernel is done.
  void Close() noexcept;
  // True while foreign code has the address and may write without raising `version`: always for
  // imported memory, for other memory while it is held (HeldBytes). What is derived from the bytes
  // must not be kept then. To be asked before `version` is read.
  bool MayBeWrittenOutside() const {
    // Acquire: who does not see the hold any more sees the version that its end raised.
    return imported || (care.load(std::memory_order_acquire) & kHeld) != 0;
  }
  // Whether the bytes may be read: neither closed nor of a cycle that has ended. One load and a
  // compare; on another thread's buffer the answer may be old by the time it is used, unless it is
  // pinned (pins.h).
  bool IsAlive() const {
    return stamp_cell->load(std::memory_order_relaxed) == stamp.load(std::memory_order_relaxed);
  }

  // Single records come from small blocks.
  static void* operator new(size_t bytes);
  static void operator delete(void* record, size_t bytes) noexcept;
};
static_assert(sizeof(Buffer) == 128);

inline constexpr size_t kHeapAlignment = 64;  // bytes, of arrays on the heap

// New memory outside of workspaces, for MemoryOwner::Current(). Throws OutOfMemoryError, or
// kUnimplemented when no provider of the device is linked.
Buffer* NewHeapBuffer(size_t bytes, size_t alignment = kHeapAlignment,
                      MemoryKind kind = MemoryKind::kAllocated, Device device = Host());
// Memory owned elsewhere, counted as `kind` (kExternal, or kGradientExternal for gradients handed in)
// until the last handle goes; `release(context)` runs then. Whoever else has the address may write to it
// whenever no operator uses it: nothing that is derived from its bytes, such as packed weights, is kept.
// Throws kInvalidArgument for bytes at null, of more than kMostCountedBytes, that leave the address space,
// or that bring the ledger's sum beyond kMostCountedBytesInAll (the same memory may be imported many times);
// nothing is released then. Kernels that read a few bytes further (kReadableTailBytes) get it only
// when those are on the page its last byte is on.
Buffer* NewImportedBuffer(void* data, size_t bytes, void (*release)(void*), void* context,
                          MemoryKind kind = MemoryKind::kExternal);
// The same of any device; kInvalidArgument for one, or numbers of queues, that there cannot be. On one of several queues our uses come behind what is queued by then in the queue that the
// bytes are made in, which is the thread's unless another is named. Where they have a home, work that is queued there
// after `release` comes behind our uses; that queue is open until `release` has run.
struct ImportedMemory {
  static constexpr int kNone = -1;  // no queue is named

  void* data;                               // on `device`
  size_t bytes;                             // at `data`
  void (*release)(void* context);           // may be null
  void* context;                            // what `release` gets
  MemoryKind kind = MemoryKind::kExternal;  // that the bytes are counted under
  Device device = Host();                   // where they are
  int made_in = kNone;                      // the thread's
  int home = kNone;                         // the host waits for our uses before `release`
  bool read_only = false;                   // operators that would write to it are refused
};
// A record of one reference, for a BufferHandle to adopt. Throws as above.
Buffer* NewImportedBuffer(const ImportedMemory& memory);
// What the bytes are for has changed: gradients that are now deferred, say. Of heap and imported
// buffers; one of a workspace, and a kind that there is not, throw kInvalidArgument. With a handle of it.
// Other threads may close it or change its kind meanwhile: the last kind it had before its bytes went is
// what is taken off the ledger. Nothing happens to one that is closed.
void SetBufferKind(Buffer& buffer, MemoryKind kind);

// A number that no other buffer of the process has or will have; not 0.
uint64_t NextBufferId();
// The first of so many numbers for the caller's buffers.
inline constexpr uint64_t kBufferIdsAtOnce = uint64_t{1} << 20;
uint64_t NextBufferIds();

namespace internal {

// Of the tree of owners, set by it before the first buffer is in it.
struct OwnershipHooks {
  // Of a buffer whose link.node is a reference: takes it out of that node and makes it `to`; false when
  // it is not there any more: look again.
  bool (*take_out)(Buffer* buffer, uint64_t to) noexcept;
  // Of a buffer with kLent.
  void (*end_loans)(Buffer* buffer) noexcept;
  // Who closed it: "owner [a/b]"; empty when no node did.
  std::string (*describe_closed)(const Buffer& buffer);
  // What was noted of a buffer with kTraced, or that a node closed, goes.
  void (*drop)(Buffer* buffer) noexcept;
};
extern std::atomic<const OwnershipHooks*> ownership_hooks;
// Of the mirrors, set before the first one is: the buffer's bytes go.
extern std::atomic<void (*)(Buffer* buffer) noexcept> drop_mirror;

// The buffer's host copy, if it has one, goes.
void DropMirror(Buffer* buffer) noexcept;

// Of queue_use.cc. The buffer goes: its owner is told which queues used it.
void LeaveQueues(Buffer* buffer) noexcept;
// Before a block of a device's heap goes back, in the order of the calling thread's queue.
void ReleaseHere(Buffer* buffer) noexcept;
// Before imported memory of a device goes back to its home (ImportedMemory).
void ReleaseHome(Buffer* buffer, int home) noexcept;

void BeforeRelease(Buffer* buffer) noexcept;
// The last handle is gone.
inline void ReleaseLast(Buffer* buffer) noexcept {
  if (buffer->care.load(std::memory_order_relaxed) != 0) BeforeRelease(buffer);
  buffer->owner->Release(buffer);
}
// Of buffers that the caller won the right to close, whose `closed` it has just set: nobody reads them
// from here on, and their bytes go. `after`, if not null, takes the release functions of imported memory, which may run any code;
// else they run here. `next`, if not null, and what is `older` than it will be closed after these, and
// is brought near meanwhile.
struct ImportRelease {
  void (*release)(void* context);
  void* context;
};
void CloseClaimed(Buffer* const* buffers, int count, ImportRelease* after, int* after_count,
                  const Buffer* next = nullptr) noexcept;

}  // namespace internal

// A share of a Buffer: it and its bytes stay as long as there is one, unless they are closed
// before. A value; null when default-made or moved from. Threads: each handle is one thread's,
// those of one buffer may be on many.
class BufferHandle {
 public:
  BufferHandle() = default;
  // Takes over the reference a New... function returned.
  explicit BufferHandle(Buffer* adopted) : buffer_(adopted) {}
  BufferHandle(const BufferHandle& other) : buffer_(other.buffer_) {
    if (buffer_ != nullptr) buffer_->references.fetch_add(1, std::memory_order_relaxed);
  }
  BufferHandle(BufferHandle&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferHandle& operator=(const BufferHandle& other) {
    // Counted before the old one goes: they may be the same.
    if (other.buffer_ != nullptr) other.buffer_->references.fetch_add(1, std::memory_order_relaxed);
    Buffer* const next = other.buffer_;
    Reset();
    buffer_ = next;
    return *this;
  }
  // The buffer it had loses this share.
  BufferHandle& operator=(BufferHandle&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    other.Reset();
    return *this;
  }
  ~BufferHandle() { Reset(); }

  // Gives the share back, the last one with the bytes; null afterwards.
  void Reset() noexcept {
    Buffer* buffer = std::exchange(buffer_, nullptr);
    if (buffer == nullptr) return;
    // A sole owner needs no locked instruction: nobody else can copy a handle it does not have.
    if (buffer->references.load(std::memory_order_acquire) == 1)
      return internal::ReleaseLast(buffer);
    if (buffer->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      buffer->references.store(1, std::memory_order_relaxed);  // as every record's that is free
      internal::ReleaseLast(buffer);
    }
  }

  // The record, which stays this handle's; null of none.
  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_BUFFER_H_
