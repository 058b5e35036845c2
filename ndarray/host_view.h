// HostView and DeviceView: pointers to an array's elements that lock what they point to.
//
//   {
//     HostView<float> values(array);           // brings the host copy up to date
//     for (float& value : values) value = 1;
//   }                                          // exactly this array's bytes are stale on the device
//   HostView<const float> read(array);         // several may be alive, also beside kernels that read
//   HostView<float> all(array, ViewContents::kOverwritten);  // no copy: every element will be written
//
// While a view of an array on a device is alive, an operator, copy or view that would write what it
// sees, or see what it writes, throws kFailedPrecondition and names both. On host arrays, which kernels
// and the host share, views are plain pointers, and the write counts when the view ends: weights that a
// kernel has packed stay the old ones until then. The pointer of a temporary view does not compile.
//
// Dense arrays only. Threads: a view is one thread's; views of one array may be on many.
//
// A view keeps its array's memory, but not beyond the array's Close(), its manager's or its cycle.
// Who may do these on another thread has to know that the view is not used any more, as of any
// plain pointer: the bytes of a host array, and the device's pointer, are given back at once. While
// a view is made, and when it ends, the first two may happen at any time: the view is made or
// refused, and ending it is safe (a cycle's end waits for nobody, see pins.h). A HostView of an
// array on a device points to the host copy, which it keeps: it may be read and written to its end,
// though nobody sees what is written after that.
#ifndef TIDEPOOL_NDARRAY_HOST_VIEW_H_
#define TIDEPOOL_NDARRAY_HOST_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// What a mutable view finds: the elements as they are, or anything, since all will be written: then
// nothing is copied from the device.
enum class ViewContents : uint8_t { kKept, kOverwritten };

namespace internal {

// A view without its type.
class LockedView {
 public:
  enum class Side : uint8_t { kHost, kDevice };

  // Throws as NDArray::data, as BufferMirror, and when another view is in the way.
  LockedView(const NDArray& array, DType dtype, Side side, bool writes, ViewContents contents);
  ~LockedView();
  LockedView(const LockedView&) = delete;
  LockedView& operator=(const LockedView&) = delete;

  void* data() const { return data_; }
  int64_t size() const { return array_.NumElements(); }

 private:
  NDArray array_;
  bool writes_;
  void* data_ = nullptr;
  BufferMirror* mirror_ = nullptr;  // with the lock
  MirrorLock lock_;
};

}  // namespace internal

template <typename T>
class [[nodiscard]] HostView {
 public:
  explicit HostView(const NDArray& array, ViewContents contents = ViewContents::kKept)
      : view_(array, DTypeOf<std::remove_const_t<T>>::value, internal::LockedView::Side::kHost,
              !std::is_const_v<T>, contents) {}

  // Pointer to the first element, row-major, and behind the last; element i, unchecked; how many
  // there are. Good while the view is alive, and so not to be had of a temporary one.
  T* data() & { return static_cast<T*>(view_.data()); }
  T* data() && = delete;
  T* begin() & { return data(); }
  T* begin() && = delete;
  T* end() & { return data() + size(); }
  T* end() && = delete;
  T& operator[](int64_t i) & { return data()[i]; }
  T& operator[](int64_t i) && = delete;
  int64_t size() const { return view_.size(); }

 private:
  internal::LockedView view_;
};

// For kernels of one's own: the device's pointer, brought up to date for what is queued on the compute
// queue from here on. Mutable: the host copy is stale there afterwards.
template <typename T>
class [[nodiscard]] DeviceView {
 public:
  explicit DeviceView(const NDArray& array)
      : view_(array, DTypeOf<std::remove_const_t<T>>::value, internal::LockedView::Side::kDevice,
              !std::is_const_v<T>, ViewContents::kKept) {}

  // Device memory, row-major, and the number of elements. Not for the host to read.
  T* data() & { return static_cast<T*>(view_.data()); }
  T* data() && = delete;
  int64_t size() const { return view_.size(); }

 private:
  internal::LockedView view_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_HOST_VIEW_H_
