#include "tidepool/ndarray/spill/spilled_array.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/host_view.h"

namespace tidepool {
namespace {

using internal::LockedView;

size_t BytesOf(const Shape& shape, DType dtype) {
  return static_cast<size_t>(shape.NumElements()) * static_cast<size_t>(DTypeBytes(dtype));
}

}  // namespace

SpilledArray::SpilledArray(SpillFile& file, const NDArray& array)
    : SpilledArray(Writing(file, array).Finish()) {}

SpilledArray::Writing::Writing(SpillFile& file, const NDArray& array) {
  array.CheckAlive("spill", "array");
  array_.file_ = &file;
  array_.shape_ = array.shape();
  array_.dtype_ = array.dtype();
  array_.device_ = array.device();
  if (array.NumElements() == 0) {
    writes_ = file.BeginWrite(nullptr, 0);
    return;
  }
  dense_ = array.device() == Host() && array.is_dense() ? array : array.CopyTo(Place::Heap());
  view_ = std::make_unique<LockedView>(dense_, array.dtype(), LockedView::Side::kHost,
                                       /*writes=*/false, ViewContents::kKept);
  writes_ = file.BeginWrite(view_->data(), BytesOf(array.shape(), array.dtype()));
}

SpilledArray SpilledArray::Writing::Finish() {
  array_.kept_ = writes_.Wait();
  view_.reset();
  dense_ = NDArray();
  return std::move(array_);
}

void SpilledArray::RestoreInto(NDArray& array) const {
  array.CheckAlive("restore", "array");
  if (!has_value()) ThrowFailedPrecondition("SpilledArray: there is nothing to restore");
  if (array.shape() != shape_ || array.dtype() != dtype_) {
    ThrowInvalidArgument(absl::StrCat("Op [restore] array: found ", array.shape().ToString(),
                                      " of ", DTypeName(array.dtype()), ", expected ",
                                      shape_.ToString(), " of ", DTypeName(dtype_)));
  }
  array.CheckWritable("restore");
  if (shape_.NumElements() == 0) return;
  if (array.device() == Host() && array.is_dense()) {
    const LockedView view(array, dtype_, LockedView::Side::kHost, /*writes=*/true,
                          ViewContents::kOverwritten);
    return file_->Read(kept_, view.data());
  }
  NDArray dense(shape_, dtype_, Place::Heap());
  file_->Read(kept_, dense.raw_data());
  dense.MarkWritten();
  std::move(array) = dense;
}

NDArray SpilledArray::Restore(Place place) const {
  NDArray restored(shape_, dtype_, place);
  RestoreInto(restored);
  return restored;
}

NDArray SpilledArray::Restore() {
  if (!is_prefetched()) return Restore(Place::CurrentOn(device_));
  const NDArray ahead = std::exchange(ahead_, NDArray());
  std::exchange(reads_, SpillTransfer()).Wait();
  return device_ == Host() ? ahead.Migrate() : ahead.CopyTo(Place::CurrentOn(device_));
}

void SpilledArray::Prefetch() {
  if (!has_value()) ThrowFailedPrecondition("SpilledArray: there is nothing to prefetch");
  if (is_prefetched()) return;
  NDArray ahead(shape_, dtype_, Place::Heap());
  reads_ = file_->BeginRead(kept_, ahead.raw_data());
  ahead_ = std::move(ahead);
}

void SpilledArray::DropPrefetch() {
  reads_ = SpillTransfer();
  ahead_ = NDArray();
}

}  // namespace tidepool
