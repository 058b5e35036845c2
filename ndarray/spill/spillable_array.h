// SpillableArray: an array that a budget may take the memory of while nobody uses it (memory/spill/spillables.h).
//
//   Spillables spillables(file);
//   SpillableArray table(spillables, MakeTable(), "table");
//   ... the table may be in the file now, if memory was needed ...
//   {
//     const SpillableArray::Pinned pinned = table.Read();  // in memory until the end of this
//     y = MatMul(x, *pinned);
//   }
//   table.Prefetch();                                      // read beside what comes next, where it is away
//
// Where uses come in the same order again and again, Spillables::EndCycle() has that learned: nobody need prefetch then.
//
// Its bits never change by going and coming. Handles and views taken of a pinned array may outlive the pin: the memory stays then, as
// if pinned, until they are gone, and so it does while other code has its bytes (HeldBytes).
//
// Ownership: `spillables` and its file outlive it. Errors: those of SpillFile and OutOfMemoryError from Read, Write and
// Prefetch: the array is away still, and may be asked for again. Threads: any, but that one of them makes and ends it; what threads do to
// the bytes at once is up to them, as of any array. Cost: a pin is two atomic steps and a lock.
#ifndef TIDEPOOL_NDARRAY_SPILL_SPILLABLE_ARRAY_H_
#define TIDEPOOL_NDARRAY_SPILL_SPILLABLE_ARRAY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class SpillableArray {
 public:
  class Pinned;

  SpillableArray() = default;
  // Takes `array` over where it is dense on the heap and the caller has no other handle of it; else a dense copy, on the heap of its
  // device, which is charged to the current owner.
  SpillableArray(Spillables& spillables, NDArray array, std::string name = "array");
  // Never written: dropped, and computed again by whoever needs it next, on his thread, in no workspace. `compute` has to give the
  // same shape, type and device each time, and may not read the array itself: kFailedPrecondition. What is written to it (Write) is lost with it.
  static SpillableArray Recomputed(Spillables& spillables, std::function<NDArray()> compute,
                                   std::string name = "array");
  SpillableArray(SpillableArray&&) noexcept = default;
  SpillableArray& operator=(SpillableArray&& other) noexcept;
  ~SpillableArray() { Reset(); }

  // Whether there is one, and of what kind; known while it is away, too.
  bool has_value() const { return item_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  Device device() const;

  // To be read, and to be written. All of it is there, whichever. kFailedPrecondition where there is none.
  Pinned Read() const;
  Pinned Write();
  // Begins to read it from the file. Does nothing where it is here, or is computed.
  void Prefetch();
  // Now. False: it is pinned, away already, or its bytes are with somebody else as well.
  bool Spill();
  bool is_here() const;  // of some moment
  void Reset() noexcept;

 private:
  struct Item;
  SpillableArray(Spillables& spillables, NDArray array, std::function<NDArray()> compute,
                 std::string name);
  Item& Checked() const;

  Spillables* spillables_ = nullptr;
  std::shared_ptr<Item> item_;
};

class SpillableArray::Pinned {
 public:
  Pinned(Pinned&& other) noexcept = default;
  Pinned& operator=(Pinned&& other) noexcept;
  ~Pinned() { Reset(); }

  // The array, in memory until Reset() or the end of this.
  NDArray& operator*() const;
  NDArray* operator->() const { return &**this; }
  void Reset() noexcept;

 private:
  friend class SpillableArray;
  Pinned(Spillables& spillables, std::shared_ptr<Item> item)
      : spillables_(&spillables), item_(std::move(item)) {}

  Spillables* spillables_;
  std::shared_ptr<Item> item_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_SPILLABLE_ARRAY_H_
