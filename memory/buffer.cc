#include "tidepool/memory/buffer.h"

#include <array>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/block_cache.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/sync/owner_word.h"

namespace tidepool {
namespace {

// Memory outside of workspaces is alive as long as somebody holds it.
constinit std::atomic<uint64_t> always_alive{1};

void TellMade(Buffer& buffer) noexcept {
  MemoryListener::Each([&](MemoryListener& listener) { listener.Made(buffer); });
}
void TellGone(const Buffer& buffer) noexcept {
  MemoryListener::Each([&](MemoryListener& listener) { listener.Gone(buffer); });
}

class HeapOwner final : public BufferOwner {
  void Release(Buffer* buffer) noexcept override {
    if (buffer->closed.load(std::memory_order_relaxed) == Buffer::kNotClosed) Close(buffer);
    delete buffer;
  }
  void Close(Buffer* buffer) noexcept override {
    if (buffer->device != Host()) internal::ReleaseHere(buffer);
    TellGone(*buffer);
    HeapRelease(buffer->data, buffer->bytes, buffer->kind, buffer->device,
                buffer->outside.charged_to);
  }
  std::string DescribeStale(uint64_t) const override { return ""; }
};

class ImportOwner final : public BufferOwner {
 public:
  constexpr explicit ImportOwner(int home) : home_(home) {}

 private:
  int HomeQueue() const override { return home_ == ImportedMemory::kNone ? 0 : home_; }
  void Release(Buffer* buffer) noexcept override {
    if (buffer->closed.load(std::memory_order_relaxed) == Buffer::kNotClosed) Close(buffer);
    delete buffer;
  }
  void Close(Buffer* buffer) noexcept override {
    if (buffer->device != Host()) internal::ReleaseHome(buffer, home_);
    TellGone(*buffer);
    MemoryTracker::Global().Add(buffer->device, buffer->kind, -static_cast<int64_t>(buffer->bytes),
                                buffer->outside.charged_to);
    if (buffer->outside.release_imported != nullptr)
      buffer->outside.release_imported(buffer->outside.import_context);
  }
  std::string DescribeStale(uint64_t) const override { return ""; }

  const int home_;
};

constinit HeapOwner heap_owner;
// By their homes, none first.
template <size_t... kHome>
constexpr auto ImportOwners(std::index_sequence<kHome...>) {
  return std::array<ImportOwner, sizeof...(kHome)>{ImportOwner(static_cast<int>(kHome) - 1)...};
}
constinit auto import_owners = ImportOwners(std::make_index_sequence<kMostQueues + 1>());

void Initialise(Buffer* buffer, BufferOwner* owner, std::byte* data, size_t bytes, MemoryKind kind,
                Device device) {
  buffer->stamp_cell = &always_alive;
  buffer->stamp.store(1, std::memory_order_relaxed);
  buffer->data = data;
  buffer->bytes = bytes;
  buffer->id = NextBufferId();
  buffer->device = device;
  buffer->kind = kind;
  buffer->owner = owner;
}

// A block is there for work of the queue that it was had in.
void NoteQueueHere(Buffer& buffer) noexcept {
  const int queue = QueueHere(buffer.device);
  if (queue == 0) return;
  buffer.queues.store(static_cast<uint16_t>(1u << queue), std::memory_order_relaxed);
}

}  // namespace

namespace internal {

std::atomic<const OwnershipHooks*> ownership_hooks{nullptr};
std::atomic<void (*)(Buffer* buffer) noexcept> drop_mirror{nullptr};

void DropMirror(Buffer* buffer) noexcept {
  if (buffer->mirror.load(std::memory_order_acquire) == nullptr) return;
  drop_mirror.load(std::memory_order_acquire)(buffer);
}

void BeforeRelease(Buffer* buffer) noexcept {
  const OwnershipHooks* hooks = ownership_hooks.load(std::memory_order_acquire);
  uint8_t care = buffer->care.load(std::memory_order_relaxed);
  // Nobody has a handle, but a borrower or a node may be closing it: their locks are waited for.
  if ((care & Buffer::kLent) != 0) hooks->end_loans(buffer);
  buffer->link.node.LeaveNode([=](uint64_t to) { return hooks->take_out(buffer, to); });
  // What they have noted.
  care = buffer->care.load(std::memory_order_relaxed);
  const uint8_t closed = buffer->closed.load(std::memory_order_relaxed);
  if (care == Buffer::kInTree && closed == Buffer::kNotClosed) {  // as nearly always
    return buffer->care.store(0, std::memory_order_relaxed);
  }
  if ((care & Buffer::kMirrored) != 0) DropMirror(buffer);
  if ((care & Buffer::kOnQueues) != 0 && buffer->attached) LeaveQueues(buffer);
  if (BufferPins::ClaimPending(buffer)) FinishPendingClose(buffer);
  // What is dead was told of when its cycle ended or it was closed.
  if ((care & Buffer::kTraced) != 0 && buffer->IsAlive()) TellGone(*buffer);
  if (hooks != nullptr && ((care & Buffer::kTraced) != 0 || closed == Buffer::kClosedByNode)) {
    hooks->drop(buffer);
  }
  if (closed != Buffer::kNotClosed) buffer->link.node.Set(OwnerWord<StdSync>::kHandles);
  buffer->care.store(0, std::memory_order_relaxed);
}

void CloseClaimed(Buffer* const* buffers, int count, ImportRelease* after, int* after_count,
                  const Buffer* next) noexcept {
  if (MemoryListener::Current(MemoryListener::kRecord) != nullptr) [[unlikely]] {
    for (int i = 0; i < count; ++i) {
      const bool is_traced =
          (buffers[i]->care.load(std::memory_order_relaxed) & Buffer::kTraced) != 0;
      if (is_traced && buffers[i]->IsAlive()) TellGone(*buffers[i]);
    }
  }
  for (int i = 0; i < count; ++i) {
    buffers[i]->stamp.store(0, std::memory_order_relaxed);  // matches no cell
  }
  const bool pinned = buffer_pins.AnyPinned();
  HeapReleases releases;
  for (int i = 0; i < count; ++i) {
    Buffer* buffer = buffers[i];
    if (next != nullptr) {
      __builtin_prefetch(next, 1);
      next = next->link.older.get();
    }
    if ((pinned && buffer_pins.Postpone(buffer)) || LeaveToHolds(buffer)) continue;
    if (after != nullptr && !buffer->attached && buffer->outside.release_imported != nullptr) {
      after[(*after_count)++] = {std::exchange(buffer->outside.release_imported, nullptr),
                                 buffer->outside.import_context};
    }
    DropMirror(buffer);
    if (buffer->owner == &heap_owner) {
      if (buffer->device != Host()) ReleaseHere(buffer);
      TellGone(*buffer);
      releases.Release(buffer->data, buffer->bytes, buffer->kind, buffer->device,
                       buffer->outside.charged_to);
    } else {
      buffer->owner->Close(buffer);
    }
  }
}

}  // namespace internal

void* Buffer::operator new(size_t bytes) {
  if (!kSmallBlocksInUse) return ::operator new (bytes, std::align_val_t{alignof(Buffer)});
  void* const record = AllocateSmallBlock(bytes);
  if (record == nullptr) throw std::bad_alloc();
  return record;
}

void Buffer::operator delete(void* record, size_t bytes) noexcept {
  if (!kSmallBlocksInUse) return ::operator delete (record, std::align_val_t{alignof(Buffer)});
  ReleaseSmallBlock(static_cast<std::byte*>(record), bytes);
}

void Buffer::Close() noexcept {
  const auto hooks = [] { return internal::ownership_hooks.load(std::memory_order_acquire); };
  if (!link.node.Close([&](uint64_t to) { return hooks()->take_out(this, to); })) return;
  closed.store(kClosedAlone, std::memory_order_relaxed);
  // A lender notes kLent and then looks at the word: one of the two sees the other.
  if ((care.fetch_or(kInTree, std::memory_order_release) & kLent) != 0) hooks()->end_loans(this);
  Buffer* self = this;
  internal::CloseClaimed(&self, 1, nullptr, nullptr);
}

uint64_t NextBufferIds() {
  static std::atomic<uint64_t> next_block{0};
  return next_block.fetch_add(1, std::memory_order_relaxed) * kBufferIdsAtOnce + 1;
}

uint64_t NextBufferId() {
  // Each thread takes numbers by the block, so that the common case is a plain increment.
  thread_local constinit uint64_t next = 0;
  thread_local constinit uint64_t end = 0;
  if (next == end) {
    next = NextBufferIds();
    end = next + kBufferIdsAtOnce;
  }
  return next++;
}

Buffer* NewHeapBuffer(size_t bytes, size_t alignment, MemoryKind kind, Device device) {
  if (device != Host()) CheckNotLost(device, "heap");  // what it had given back it might give again
  std::unique_ptr<Buffer> buffer(new Buffer);          // make_unique would clear it before
  buffer->outside = {&MemoryOwner::Current(), nullptr, nullptr};
  auto* data = static_cast<std::byte*>(
      HeapAllocate(bytes, alignment, kind, device, buffer->outside.charged_to));
  Initialise(buffer.get(), &heap_owner, data, bytes, kind, device);
  if (device != Host()) NoteQueueHere(*buffer);
  TellMade(*buffer);
  return buffer.release();
}

Buffer* NewImportedBuffer(void* data, size_t bytes, void (*release)(void*), void* context,
                          MemoryKind kind) {
  return NewImportedBuffer({data, bytes, release, context, kind});
}

Buffer* NewImportedBuffer(const ImportedMemory& memory) {
  void* const data = memory.data;
  const size_t bytes = memory.bytes;
  if (data == nullptr && bytes > 0) {
    ThrowInvalidArgument(absl::StrCat("NewImportedBuffer: ", bytes,
                                      " bytes at a null pointer, expected their address"));
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  if (bytes > static_cast<size_t>(kMostCountedBytes) || bytes > UINTPTR_MAX - begin) {
    ThrowInvalidArgument(absl::StrCat("NewImportedBuffer: found ", bytes, " bytes at 0x",
                                      absl::Hex(begin), ", expected at most ", kMostCountedBytes,
                                      ", within the address space"));
  }
  CheckDevice("NewImportedBuffer", memory.device);
  for (const int queue : {memory.made_in, memory.home}) {
    if (queue != ImportedMemory::kNone) CheckQueueNumber(memory.device, queue);
  }
  std::unique_ptr<Buffer> buffer(new Buffer);
  Initialise(buffer.get(), &import_owners[memory.home + 1], static_cast<std::byte*>(data), bytes,
             memory.kind, memory.device);
  buffer->outside = {&MemoryOwner::Current(), memory.release, memory.context};
  buffer->imported = true;
  buffer->read_only = memory.read_only;
  const uintptr_t end = begin + bytes;
  constexpr uintptr_t kLeastPage = 4096;
  buffer->readable_tail = (end - 1) / kLeastPage == (end - 1 + kReadableTailBytes) / kLeastPage;
  if (memory.device != Host()) {
    const int queue =
        memory.made_in == ImportedMemory::kNone ? QueueHere(memory.device) : memory.made_in;
    buffer->queues.store(static_cast<uint16_t>(1u << queue), std::memory_order_relaxed);
    buffer->care.store(Buffer::kOnQueues, std::memory_order_relaxed);
  }
  MemoryTracker::Global().AddClaimed(memory.device, memory.kind, static_cast<int64_t>(bytes),
                                     buffer->outside.charged_to);
  TellMade(*buffer);
  return buffer.release();
}

void SetBufferKind(Buffer& buffer, MemoryKind kind) {
  if (buffer.attached) {
    ThrowInvalidArgument(absl::StrCat("SetBufferKind: the buffer is workspace [",
                                      buffer.owner->WorkspaceId(),
                                      "]'s, expected one outside of workspaces"));
  }
  if (static_cast<size_t>(kind) >= kMemoryKinds) {
    ThrowInvalidArgument(absl::StrCat("SetBufferKind: kind ", static_cast<int>(kind),
                                      ", expected one of ", kMemoryKinds));
  }
  // Who closes it meanwhile leaves the bytes, which are taken off the ledger by their kind, to this thread.
  PinScope pin;
  pin.Pin(&buffer);
  pin.Publish();
  if (!buffer.IsAlive()) return;
  MemoryTracker::Global().ChangeKind(buffer.device, &buffer.kind, kind,
                                     static_cast<int64_t>(buffer.bytes), buffer.outside.charged_to);
}

}  // namespace tidepool
