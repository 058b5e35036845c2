#include "tidepool/memory/mirroring/mirrored_buffer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/heap.h"

namespace tidepool {

bool IsHostReadable(const Buffer& buffer) {
  if (buffer.device == Host()) return true;
  const DeviceProvider* const provider = FindDeviceProvider(buffer.device);
  return provider != nullptr && provider->traits().host_readable;
}

MirroredBuffer::MirroredBuffer(BufferHandle buffer)
    : buffer_(std::move(buffer)),
      device_(&GetDeviceProvider(buffer_->device, "MirroredBuffer")),
      host_memory_(device_->PinnedHost()),
      shared_(IsHostReadable(*buffer_.get())) {
  if (host_memory_ == nullptr) host_memory_ = &GetDeviceProvider(Host(), "MirroredBuffer");
}

MirroredBuffer::~MirroredBuffer() { ReleaseHostCopy(); }

void MirroredBuffer::ReleaseHostCopy() noexcept {
  if (host_ == nullptr) return;
  HeapRelease(host_, buffer_->bytes, MemoryKind::kAllocated, *host_memory_);
  host_ = nullptr;
  host_valid_ = false;
}

bool MirroredBuffer::host_is_current() const {
  return shared_ ||
         (host_valid_ && host_version_ == buffer_->version.load(std::memory_order_relaxed));
}

void MirroredBuffer::Check(bool on_host) const {
  if (!buffer_->IsAlive()) {
    ThrowFailedPrecondition(
        buffer_->closed ? std::string("MirroredBuffer: the buffer was closed")
                        : "MirroredBuffer: " + buffer_->owner->DescribeStale(buffer_->stamp));
  }
  if (on_host && !shared_) {
    if (const std::string why = buffer_->owner->WhyNoHostCopy(); !why.empty()) {
      ThrowFailedPrecondition(absl::StrCat("MirroredBuffer: host access to a buffer of ",
                                           buffer_->bytes, " bytes: ", why));
    }
  }
  if (device_stale_ && host_version_ != buffer_->version.load(std::memory_order_relaxed)) {
    ThrowFailedPrecondition(absl::StrCat("MirroredBuffer: a buffer of ", buffer_->bytes,
                                         " bytes on ", DeviceName(buffer_->device),
                                         " was written there and on the host"));
  }
}

void MirroredBuffer::MakeHostCopy() {
  if (shared_ || host_ != nullptr) return;
  host_ = static_cast<std::byte*>(
      HeapAllocate(buffer_->bytes, 64, MemoryKind::kAllocated, *host_memory_));
}

void MirroredBuffer::ToHost() {
  if (host_is_current()) return;
  MakeHostCopy();
  device_->CopyToHost(host_, buffer_->data, buffer_->bytes);
  host_version_ = buffer_->version.load(std::memory_order_relaxed);
  host_valid_ = true;
  ++counters_.copies_to_host;
  counters_.bytes_to_host += static_cast<int64_t>(buffer_->bytes);
}

void MirroredBuffer::ToDevice() {
  if (!device_stale_) return;
  device_->CopyFromHost(buffer_->data, host_, buffer_->bytes);
  device_stale_ = false;
  ++counters_.copies_to_device;
  counters_.bytes_to_device += static_cast<int64_t>(buffer_->bytes);
}

void MirroredBuffer::HostWritten() {
  host_version_ = buffer_->version.fetch_add(1, std::memory_order_relaxed) + 1;
  host_valid_ = !shared_;
  device_stale_ = !shared_;
}

const std::byte* MirroredBuffer::ReadOnHost() {
  Check(true);
  ToHost();
  return shared_ ? buffer_->data : host_;
}

std::byte* MirroredBuffer::WriteOnHost() {
  Check(true);
  ToHost();
  HostWritten();
  return shared_ ? buffer_->data : host_;
}

std::byte* MirroredBuffer::OverwriteOnHost() {
  Check(true);
  MakeHostCopy();
  HostWritten();
  return shared_ ? buffer_->data : host_;
}

const std::byte* MirroredBuffer::ReadOnDevice() {
  Check(false);
  ToDevice();
  return buffer_->data;
}

std::byte* MirroredBuffer::WriteOnDevice() {
  Check(false);
  ToDevice();
  buffer_->version.fetch_add(1, std::memory_order_relaxed);
  return buffer_->data;
}

std::byte* MirroredBuffer::OverwriteOnDevice() {
  Check(false);
  device_stale_ = false;
  buffer_->version.fetch_add(1, std::memory_order_relaxed);
  return buffer_->data;
}

void MirroredBuffer::DropHostCopy() {
  Check(false);
  ToDevice();
  ReleaseHostCopy();
}

}  // namespace tidepool
