#include "tidepool/ndarray/io/dlpack_streams.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"

namespace tidepool::internal {
namespace {

constexpr int64_t kLegacyDefault = 1, kThreadsDefault = 2;  // of CUDA

}  // namespace

DLPackStream::DLPackStream(const char* who, const DLPackDevice& entry, Device device,
                           std::optional<int64_t> number)
    : device_(device) {
  if (number == kNoOrder) return;
  const bool is_cuda = entry.streams == DLPackStreams::kCuda;
  if (!number.has_value() && !is_cuda) {
    host_waits_ = true;
    return;
  }
  int64_t stream = number.value_or(kLegacyDefault);
  if (entry.streams == DLPackStreams::kNone || stream <= 0) {
    ThrowInvalidArgument(
        absl::StrCat(who, ": found stream ", stream, " of ", DeviceName(device), ", expected ",
                     entry.streams == DLPackStreams::kNone ? "none, as it has no streams, or -1"
                     : is_cuda ? "1 (the legacy default stream), 2 (the thread's), a cudaStream_t "
                                 "or -1; 0 may be either"
                               : "the address of a queue of its interface, or -1"));
  }
  // Another one on each thread, so its handle says nothing later on. What is queued in the legacy default stream comes
  // behind what was queued before in those of all threads, and what is queued there later behind that.
  if (is_cuda && stream == kThreadsDefault) stream = kLegacyDefault;
  queue_ = DeviceQueue::Adopt(device, reinterpret_cast<void*>(static_cast<intptr_t>(stream)));
}

void DLPackStream::GiveAway(Buffer* buffer, bool writes) const {
  if (host_waits_) {
    DeviceProvider& provider = GetDeviceProvider(device_, "to_dlpack");
    const QueuePoint end = PointAfterUses(*buffer);
    AskProvider("to_dlpack", device_, [&] { provider.WaitFor(end); });
    CheckSources(device_, "to_dlpack");
  }
  if (queue_.has_value()) {
    const OrderedUses ordered(device_, queue_->number(), {{buffer, writes}});
  }
}

void DLPackStream::TakeBack(Buffer* buffer, bool writes) const noexcept {
  if (!queue_.has_value()) return;
  try {
    const OrderedUses ordered(device_, queue_->number(), {{buffer, writes}});
  } catch (...) {
    try {
      queue_->Wait();
    } catch (...) {  // the device has failed: there is nothing to come behind
    }
  }
}

void DLPackStream::TakeOver(ImportedMemory* memory) const {
  memory->device = device_;
  if (!queue_.has_value()) return;
  memory->made_in = queue_->number();
  if (queue_->is_adopted()) memory->home = queue_->number();
}

}  // namespace tidepool::internal
