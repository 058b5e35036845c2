#include "tidepool/ndarray/host_view.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/ndarray/capture/step_capture.h"

namespace tidepool::internal {

LockedView::LockedView(const NDArray& array, DType dtype, Side side, bool writes,
                       ViewContents contents)
    : array_(array), writes_(writes) {
  const char* const who = side == Side::kHost ? "host_view" : "device_view";
  array.CheckAlive(who, "X");
  if (writes) array.CheckWritable(who);
  if (side == Side::kDevice) CheckNotLost(array.device(), "Op [device_view]");
  if (dtype != array.dtype()) {
    ThrowInvalidArgument(absl::StrCat("Op [", who, "]: the array is ", DTypeName(array.dtype()),
                                      ", asked for as ", DTypeName(dtype)));
  }
  if (!array.is_dense()) {
    ThrowFailedPrecondition(absl::StrCat("Op [", who, "]: the array of shape ",
                                         array.shape().ToString(),
                                         " is a view with gaps; Dup() makes it dense"));
  }
  data_ = array.raw_data();
  if (array.device() == Host() || array.NumElements() == 0) return;
  if (side == Side::kHost) {
    RefuseWhileCapturing(who, "nothing of it has been done when the host would look");
  }
  // Whoever closes it on another thread from here on leaves its bytes and its mirror to this one,
  // until the view has hold of the mirror.
  PinScope pins;
  pins.Pin(array.buffer().get());
  pins.Publish();
  array.CheckAlive(who, "X");
  BufferMirror& mirror = BufferMirror::Of(*array.buffer().get());
  lock_.begin = static_cast<size_t>(array.raw_data() - array.buffer()->data);
  lock_.end = lock_.begin + static_cast<size_t>(array.NumElements()) * DTypeBytes(dtype);
  lock_.on_host = side == Side::kHost;
  lock_.writes = writes;
  lock_.what = absl::StrCat(side == Side::kHost ? "HostView" : "DeviceView", " of ",
                            array.shape().ToString(), " ", DTypeName(dtype));
  if (side == Side::kDevice) {
    mirror.LockOnDevice(&lock_, who);
  } else {
    const MirrorEvent event = !writes                           ? MirrorEvent::kHostRead
                              : contents == ViewContents::kKept ? MirrorEvent::kHostWrite
                                                                : MirrorEvent::kHostOverwrite;
    data_ = mirror.OnHost(event, lock_.begin, lock_.end, who, &lock_) + lock_.begin;
  }
  mirror_ = &mirror;
}

LockedView::~LockedView() {
  if (writes_) array_.MarkWritten();
  if (mirror_ != nullptr) mirror_->EndView(&lock_);
}

}  // namespace tidepool::internal
