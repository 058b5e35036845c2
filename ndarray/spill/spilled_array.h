// SpilledArray: an array whose bytes wait in a spill file (memory/spill/spill_file.h).
//
//   SpillFile file;
//   SpilledArray waits(file, activations);
//   activations = NDArray();                  // its memory is free, where nobody else has it
//   ... what needs the memory ...
//   waits.Prefetch();                         // read beside what comes next
//   activations = waits.Restore();            // the same shape, type and bits, dense
//
// Ownership: the file must outlive its arrays. Errors: those of SpillFile and of arrays; nothing is lost:
// what was refused to be written is still in the array, what failed to be read is still in the file. Threads: one at a time.
#ifndef TIDEPOOL_NDARRAY_SPILL_SPILLED_ARRAY_H_
#define TIDEPOOL_NDARRAY_SPILL_SPILLED_ARRAY_H_

#include <cstddef>
#include <memory>

#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class SpilledArray {
 public:
  // One that is being written. The array must not be written to, and not go, before Finish() has returned or this
  // is gone; then nobody reads it any more.
  class Writing;

  SpilledArray() = default;
  // Waits until the elements are written: those of a host array that is dense as they lie, others by way of
  // a dense copy on the host's heap. The array stays as it is.
  SpilledArray(SpillFile& file, const NDArray& array);
  SpilledArray(SpilledArray&&) noexcept = default;
  SpilledArray& operator=(SpilledArray&&) noexcept = default;

  // Whether it holds an array; shape, type and place of that one, and the bytes it takes in the
  // file.
  bool has_value() const { return kept_.has_value(); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }  // where it was
  // Restore() puts it there from here on. While nothing is prefetched.
  void set_device(Device device) { device_ = device; }
  size_t bytes() const { return kept_.bytes(); }

  // A new array, as often as wanted, in the current place on the device where it was, or in another one.
  // Throws kFailedPrecondition where there is nothing.
  NDArray Restore();
  NDArray Restore(Place place) const;
  // Into an array of the same shape and type, on any device.
  void RestoreInto(NDArray& array) const;
  // Begins to read, onto the host's heap, because a workspace's cycle may end before the bytes are there.
  // The next Restore() waits for that and has the array, or a copy of it where it is to be in a workspace or on a
  // device. Does nothing while one is under way. When it is not wanted after all, the destructor does not wait.
  void Prefetch();

  // Since then, until Restore().
  bool is_prefetched() const { return ahead_.is_defined(); }
  // Restore() will not wait for the file: what was prefetched is there, or has failed to be read.
  bool has_come() const { return is_prefetched() && reads_.is_done(); }
  // What was prefetched goes; the bytes are in the file still.
  void DropPrefetch();

 private:
  SpillFile* file_ = nullptr;
  SpilledBytes kept_;
  Shape shape_;
  DType dtype_ = DType::kFloat32;
  Device device_ = Host();
  NDArray ahead_;        // what was prefetched
  SpillTransfer reads_;  // after it: goes first
};

class SpilledArray::Writing {
 public:
  // Begins to write; elements as SpilledArray(file, array) has them.
  Writing(SpillFile& file, const NDArray& array);
  Writing(Writing&&) noexcept = default;
  // Once. Waits; throws as SpillFile::Write.
  SpilledArray Finish();
  bool is_done() const { return writes_.is_done(); }  // Finish() will not wait

 private:
  SpilledArray array_;
  NDArray dense_;
  std::unique_ptr<internal::LockedView> view_;
  SpillTransfer writes_;  // goes first
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_SPILLED_ARRAY_H_
