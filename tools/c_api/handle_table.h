// Handles of the C API: names of objects that nobody can follow, so that one that was released is an error and never read.
//
//   HandleTable<NDArray> arrays("array");
//   void* handle = arrays.Add(Zeros({2}));
//   arrays.Pin("tidepool_array_close", handle)->Close();
//   arrays.Release("tidepool_array_release", handle);
//
// A handle has the number of a slot and how often the slot was taken (its generation), with a tag for the table's kind; the
// slot's word has the generation, too, whether it is taken, and how many calls use its object. The object goes with its
// handle, or with the last call that uses it. Slots are used again and never freed.
//
// Threads: any. Cost: two atomic additions for each use; a lock for Add and Release; memory only where more handles are there
// than ever before.
#ifndef TIDEPOOL_TOOLS_C_API_HANDLE_TABLE_H_
#define TIDEPOOL_TOOLS_C_API_HANDLE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::c_api {

// What a handle in an error message is called.
enum class HandleKind : uint8_t { kArray = 1, kOperator, kManager, kWorkspace, kModel, kPredictor };

[[noreturn]] void ThrowNoHandle(const char* function, HandleKind expected, const void* handle);

template <typename T, HandleKind kKind>
class HandleTable {
  struct Slot {
    // Generation in the upper half; State and the number of pins in the lower one. Pins of handles that are none any more come
    // and go at any time, so the word is only ever added to or compared and exchanged.
    std::atomic<uint64_t> word{0};
    uint32_t next_free = 0;  // number of the next free slot and 1; with mutex_
    alignas(T) std::byte object[sizeof(T)];

    T* get() { return std::launder(reinterpret_cast<T*>(object)); }
  };

  static constexpr uint32_t kSlotsInChunk = 256, kMostChunks = 1 << 14;

 public:
  // There are never more at once.
  static constexpr uint32_t kMostHandles = kSlotsInChunk * kMostChunks;

  // An object, which stays while this does.
  class Pinned {
   public:
    Pinned() = default;
    Pinned(Pinned&& other) noexcept
        : table_(other.table_),
          slot_(std::exchange(other.slot_, nullptr)),
          number_(other.number_) {}
    Pinned& operator=(Pinned&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(slot_, other.slot_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Pinned() {
      if (slot_ != nullptr) table_->Unpin(*slot_, number_);
    }
    T& operator*() const { return *slot_->get(); }
    T* operator->() const { return slot_->get(); }
    explicit operator bool() const { return slot_ != nullptr; }

   private:
    friend class HandleTable;
    Pinned(HandleTable* table, Slot* slot, uint32_t number)
        : table_(table), slot_(slot), number_(number) {}
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
    uint32_t number_ = 0;
  };

  // Throws kResourceExhausted beyond kMostHandles, std::bad_alloc, and what the constructor does.
  template <typename... Arguments>
  void* Add(Arguments&&... arguments) {
    const uint32_t number = TakeSlot();
    Slot& slot = SlotOf(number);
    try {
      new (slot.object) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
      GiveSlot(number);
      throw;
    }
    const uint64_t word = slot.word.fetch_add(kGeneration + kLive, std::memory_order_release);
    return HandleOf(number, static_cast<uint32_t>(word >> 32) + 1);
  }

  // Throws kInvalidArgument, naming `function`, for what is no handle of this table.
  Pinned Pin(const char* function, const void* handle) {
    uint32_t number, generation;
    if (!Decode(handle, &number, &generation)) ThrowNoHandle(function, kKind, handle);
    Slot& slot = SlotOf(number);
    const uint64_t word = slot.word.fetch_add(1, std::memory_order_acquire);
    if ((word & kStates) != kLive || word >> 32 != generation) {
      Unpin(slot, number);
      ThrowNoHandle(function, kKind, handle);
    }
    return Pinned(this, &slot, number);
  }

  // Null: nothing. Throws as Pin.
  void Release(const char* function, const void* handle) {
    if (handle == nullptr) return;
    uint32_t number, generation;
    if (!Decode(handle, &number, &generation)) ThrowNoHandle(function, kKind, handle);
    Slot& slot = SlotOf(number);
    uint64_t word = slot.word.load(std::memory_order_relaxed);
    do {
      if ((word & kStates) != kLive || word >> 32 != generation)
        ThrowNoHandle(function, kKind, handle);
    } while (!slot.word.compare_exchange_weak(
        word, word - kLive + kDying, std::memory_order_acq_rel, std::memory_order_relaxed));
    if ((word & kPins) == 0) EndIfUnused(slot, number);
  }

 private:
  static constexpr uint64_t kPins = (uint64_t{1} << 30) - 1, kLive = uint64_t{1} << 30,
                            kDying = uint64_t{2} << 30, kStates = uint64_t{3} << 30,
                            kGeneration = uint64_t{1} << 32;
  static constexpr uint32_t kLastGeneration = UINT32_MAX - 1;
  struct Chunk {
    Slot slots[kSlotsInChunk];
  };

  // From the lowest bit: 1, so that it is no address of anything; the kind; the slot's number; its generation.
  static void* HandleOf(uint32_t number, uint32_t generation) {
    return reinterpret_cast<void*>(uint64_t{generation} << 32 | uint64_t{number} << 5 |
                                   static_cast<uint64_t>(kKind) << 1 | 1);
  }
  bool Decode(const void* handle, uint32_t* number, uint32_t* generation) const {
    const auto bits = reinterpret_cast<uint64_t>(handle);
    *generation = static_cast<uint32_t>(bits >> 32);
    *number = static_cast<uint32_t>(bits) >> 5;
    return (bits & 31) == (static_cast<uint64_t>(kKind) << 1 | 1) &&
           *number < slots_.load(std::memory_order_acquire);
  }

  Slot& SlotOf(uint32_t number) {
    return chunks_[number / kSlotsInChunk]
        .load(std::memory_order_acquire)
        ->slots[number % kSlotsInChunk];
  }

  void Unpin(Slot& slot, uint32_t number) {
    const uint64_t word = slot.word.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((word & (kStates | kPins)) == kDying) EndIfUnused(slot, number);
  }

  // Of those who see a dying slot without pins one ends it.
  void EndIfUnused(Slot& slot, uint32_t number) {
    uint64_t word = slot.word.load(std::memory_order_relaxed);
    if ((word & (kStates | kPins)) != kDying) return;
    if (!slot.word.compare_exchange_strong(word, word - kDying, std::memory_order_acq_rel,
                                           std::memory_order_relaxed))
      return;
    slot.get()->~T();
    GiveSlot(number);
  }

  uint32_t TakeSlot() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_free_ != 0) {
      const uint32_t number = first_free_ - 1;
      first_free_ = SlotOf(number).next_free;
      return number;
    }
    const uint32_t number = slots_.load(std::memory_order_relaxed);
    if (number == kMostHandles)
      ThrowResourceExhausted(
          absl::StrCat(kMostHandles, " handles of one kind are there, and no more can be"));
    if (number % kSlotsInChunk == 0)
      chunks_[number / kSlotsInChunk].store(new Chunk(), std::memory_order_release);
    slots_.store(number + 1, std::memory_order_release);
    return number;
  }

  void GiveSlot(uint32_t number) {
    Slot& slot = SlotOf(number);
    // A handle of four milliards of uses ago would be one again: such a slot is not used any more.
    if (slot.word.load(std::memory_order_relaxed) >> 32 >= kLastGeneration) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.next_free = std::exchange(first_free_, number + 1);
  }

  std::mutex mutex_;
  uint32_t first_free_ = 0;  // and 1
  std::atomic<uint32_t> slots_{0};
  std::atomic<Chunk*> chunks_[kMostChunks] = {};
};

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_HANDLE_TABLE_H_
