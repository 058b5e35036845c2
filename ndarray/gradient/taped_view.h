// An operand of a recorded call: where its elements lie in which buffer, and the buffer itself where they are read again.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_
#define TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_

#include <bit>
#include <cstdint>
#include <utility>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The version of a buffer whose values are kept or read again later. Values that no operator wrote (FromValues, Linspace, files,
// imports) have version 0, and the first write by an operator would have the number of one that fills new memory, which nobody can
// have kept anything of and which is not logged (NoteWrites): so what the values came from counts as a write once they are
// kept. On devices version 0 is memory that nothing was written to.
inline uint32_t VersionToKeep(Buffer& buffer) {
  uint32_t version = buffer.version.load(std::memory_order_relaxed);
  if (version == 0 && buffer.device == Host() &&
      buffer.version.compare_exchange_strong(version, 1, std::memory_order_relaxed)) {
    return 1;
  }
  return version;
}

// How many elements make up so many bytes. Widths are powers of two: nothing is divided.
inline int64_t ElementsIn(int64_t bytes, DType dtype) {
  return bytes >> std::countr_zero(static_cast<uint32_t>(DTypeBytes(dtype)));
}

// The number of the array's first element, from its buffer's begin.
inline int64_t FirstElementOf(const NDArray& array) {
  const Buffer* const of = array.buffer().get();
  return of != nullptr ? ElementsIn(array.raw_data() - of->data, array.dtype()) : 0;
}

// Its dims and strides lie right behind it, in the record that it is of, which has room for as many axes as it has: read it by
// reference. One that stands alone is a FreeView.
struct TapedView {
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr int32_t kHere = -1;
  static constexpr int8_t kAbsent = -1;

  BufferHandle buffer;      // null: not kept, or no elements, or away
  int64_t first = 0;        // the number of its first element, from the buffer's begin
  uint32_t slot = kNoSlot;  // of the buffer, in SlotTable
  uint32_t version = 0;     // of the buffer, where that is kept
  Device device;
  DType dtype = DType::kFloat32;
  int8_t rank = kAbsent;      // kAbsent: of an absent operand
  int32_t away : 31 = kHere;  // the number of what is kept elsewhere (kept_arrays.h)
  uint32_t guarded : 1 = 0;   // the version tells whether the elements are the same

  TapedView() {}
  // Where there is room for the array's axes. `keep`: with the buffer.
  TapedView(const NDArray& array, uint32_t slot, bool keep)
      : TapedView(array, slot, keep, array.rank(), array.buffer().get()) {}
  TapedView(const TapedView&) = delete;
  TapedView& operator=(const TapedView&) = delete;

  bool present() const { return rank >= 0; }
  int64_t* dims() { return reinterpret_cast<int64_t*>(this + 1); }
  const int64_t* dims() const { return reinterpret_cast<const int64_t*>(this + 1); }
  int64_t* strides() { return dims() + rank; }
  const int64_t* strides() const { return dims() + rank; }

  // Those elements, without keeping the buffer. Of a view that keeps none itself.
  void SetPlace(const TapedView& other) {
    first = other.first;
    slot = other.slot;
    version = other.version;
    device = other.device;
    dtype = other.dtype;
    rank = other.rank;
    guarded = other.guarded;
    const int64_t* const from = other.dims();
    int64_t* const to = dims();
    for (int i = 0; i < 2 * rank; ++i) to[i] = from[i];  // few
  }
  // Without keeping the buffer.
  void Set(const NDArray& array) {
    first = FirstElementOf(array);
    device = array.device();
    dtype = array.dtype();
    rank = static_cast<int8_t>(array.rank());
    CopyAxes(array, array.rank());
  }
  // Once it is set.
  void Keep(const NDArray& array) {
    buffer = array.buffer();
    if (buffer) NoteVersion(*buffer.get());
  }

  Shape shape() const { return Shape(absl::MakeConstSpan(dims(), static_cast<size_t>(rank))); }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= dims()[i];
    return product;
  }
  // How often axes of stride 0 (BroadcastTo) name each element.
  int64_t Repeats() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) {
      if (strides()[i] == 0) product *= dims()[i];
    }
    return product;
  }
  // That makes each of them one.
  void DropRepeats() {
    for (int i = 0; i < rank; ++i) {
      if (strides()[i] == 0) dims()[i] = 1;
    }
  }
  bool IsDense() const {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims()[i] != 1 && strides()[i] != stride) return false;
      stride *= dims()[i];
    }
    return true;
  }
  // The numbers of its elements lie in [begin, end).
  std::pair<int64_t, int64_t> Extent() const {
    int64_t begin = first, end = first + 1;
    for (int i = 0; i < rank; ++i) {
      const int64_t reach = (dims()[i] - 1) * strides()[i];
      (reach < 0 ? begin : end) += reach;
    }
    return {begin, end};
  }
  // The same elements in the same order and shape.
  bool IsSame(const TapedView& other) const {
    if (first != other.first || rank != other.rank || dtype != other.dtype) return false;
    for (int i = 0; i < rank; ++i) {
      if (dims()[i] != other.dims()[i] || (dims()[i] != 1 && strides()[i] != other.strides()[i]))
        return false;
    }
    return true;
  }
  // Of the array, if it is of the same buffer.
  bool IsOf(const NDArray& array) const {
    if (dtype != array.dtype() || rank != array.rank() || first != FirstElementOf(array))
      return false;
    const int64_t *const its_dims = array.shape().dims(), *const its_strides = array.strides();
    for (int i = 0; i < rank; ++i) {
      if (dims()[i] != its_dims[i] || strides()[i] != its_strides[i]) return false;
    }
    return true;
  }
  // The same elements in the same order, in another shape.
  bool IsSameBlock(const TapedView& other) const {
    return first == other.first && dtype == other.dtype && IsDense() && other.IsDense() &&
           count() == other.count();
  }

  // As an array of `of`, whose elements from the begin on are those of the buffer: of the buffer, or of what shadows it.
  NDArray In(BufferHandle of, int64_t begin = 0) const {
    return NDArray::FromStrides(std::move(of), begin + first, shape(),
                                absl::MakeConstSpan(strides(), static_cast<size_t>(rank)), dtype,
                                device);
  }

 private:
  TapedView(const NDArray& array, uint32_t of_slot, bool keep, int axes, Buffer* of)
      : buffer(keep ? BufferHandle(array.buffer()) : BufferHandle()),
        first(FirstElementOf(array)),
        slot(of_slot),
        device(array.device()),
        dtype(array.dtype()),
        rank(static_cast<int8_t>(axes)) {
    CopyAxes(array, axes);
    if (keep && of != nullptr) NoteVersion(*of);
  }

  // Few: both by hand, in one loop.
  void CopyAxes(const NDArray& array, int axes) {
    const int64_t* const array_dims = array.shape().dims();
    const int64_t* const array_strides = array.strides();
    int64_t* const to = dims();
    for (int i = 0; i < axes; ++i) {
      to[i] = array_dims[i];
      to[axes + i] = array_strides[i];
    }
  }
  void NoteVersion(Buffer& of) {
    guarded = of.MayBeWrittenOutside() ? 0 : 1;
    version = VersionToKeep(of);
  }
};
static_assert(sizeof(TapedView) == 32);

// Has room for all axes, and keeps no buffer. Copies are those elements.
struct FreeView : TapedView {
  FreeView() {}  // dims and strides are written when there are any
  explicit FreeView(const NDArray& array) { Set(array); }
  explicit FreeView(const TapedView& other) { SetPlace(other); }
  FreeView(const FreeView& other) : TapedView() { SetPlace(other); }
  FreeView& operator=(const FreeView& other) {
    SetPlace(other);
    return *this;
  }

 private:
  int64_t room_[2 * kMaxRank];  // reached by dims() and strides()
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_
