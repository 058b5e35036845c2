// An operand of a recorded call: where its elements lie in which buffer, and the buffer itself where they are read again.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_
#define TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_

#include <algorithm>
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

struct TapedView {
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr int32_t kHere = -1;

  BufferHandle buffer;      // null: not kept, or no elements, or away
  int64_t first = 0;        // the number of its first element, from the buffer's begin
  uint32_t slot = kNoSlot;  // of the buffer, in SlotTable
  uint32_t version = 0;     // of the buffer, where that is kept
  Device device;
  DType dtype = DType::kFloat32;
  bool present = false;  // false: an absent operand
  bool guarded = false;  // the version tells whether the elements are the same
  int8_t rank = 0;
  int32_t away =
      kHere;  // the number of what is kept elsewhere (kept_arrays.h); a copy of the view keeps nothing then
  int64_t dims[kMaxRank];
  int64_t strides[kMaxRank];

  TapedView() {}  // dims and strides are written when there are any
  explicit TapedView(const NDArray& array) { Set(array); }
  TapedView(const TapedView& other) { *this = other; }
  TapedView& operator=(const TapedView& other) {
    buffer = other.buffer;
    CopyPlace(other);
    return *this;
  }
  TapedView(TapedView&& other) noexcept : buffer(std::move(other.buffer)) { CopyPlace(other); }
  TapedView& operator=(TapedView&& other) noexcept {
    buffer = std::move(other.buffer);
    CopyPlace(other);
    return *this;
  }

  // Those elements, without keeping the buffer. Of a view that keeps none itself.
  void SetPlace(const TapedView& other) { CopyPlace(other); }
  // Without keeping the buffer.
  void Set(const NDArray& array) {
    present = true;
    rank = static_cast<int8_t>(array.rank());
    dtype = array.dtype();
    device = array.device();
    std::copy_n(array.shape().dims(), rank, dims);
    std::copy_n(array.strides(), rank, strides);
    const Buffer* const of = array.buffer().get();
    first =
        of == nullptr ? 0 : (array.raw_data() - of->data) / static_cast<int64_t>(DTypeBytes(dtype));
  }
  void Keep(const NDArray& array) {
    buffer = array.buffer();
    if (!buffer) return;
    guarded = !buffer->MayBeWrittenOutside();
    version = VersionToKeep(*buffer.get());
  }

  Shape shape() const { return Shape(absl::MakeConstSpan(dims, static_cast<size_t>(rank))); }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= dims[i];
    return product;
  }
  // How often axes of stride 0 (BroadcastTo) name each element.
  int64_t Repeats() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) {
      if (strides[i] == 0) product *= dims[i];
    }
    return product;
  }
  // That makes each of them one.
  void DropRepeats() {
    for (int i = 0; i < rank; ++i) {
      if (strides[i] == 0) dims[i] = 1;
    }
  }
  bool IsDense() const {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] != 1 && strides[i] != stride) return false;
      stride *= dims[i];
    }
    return true;
  }
  // The numbers of its elements lie in [begin, end).
  std::pair<int64_t, int64_t> Extent() const {
    int64_t begin = first, end = first + 1;
    for (int i = 0; i < rank; ++i) {
      const int64_t reach = (dims[i] - 1) * strides[i];
      (reach < 0 ? begin : end) += reach;
    }
    return {begin, end};
  }
  // The same elements in the same order and shape.
  bool IsSame(const TapedView& other) const {
    if (first != other.first || rank != other.rank || dtype != other.dtype) return false;
    for (int i = 0; i < rank; ++i) {
      if (dims[i] != other.dims[i] || (dims[i] != 1 && strides[i] != other.strides[i]))
        return false;
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
                                absl::MakeConstSpan(strides, static_cast<size_t>(rank)), dtype);
  }

 private:
  void CopyPlace(const TapedView& other) {
    first = other.first;
    slot = other.slot;
    version = other.version;
    device = other.device;
    dtype = other.dtype;
    present = other.present;
    guarded = other.guarded;
    rank = other.rank;
    std::copy_n(other.dims, rank, dims);
    std::copy_n(other.strides, rank, strides);
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_TAPED_VIEW_H_
