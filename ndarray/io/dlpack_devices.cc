#include "tidepool/ndarray/io/dlpack_devices.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

constexpr int32_t kPinnedHost = 3;  // kDLCUDAHost

// Entries are never changed once they are there. Before any static initialiser.
constinit DLPackDevice entries[kMaxDeviceTypes] = {{1, DeviceType::kHost, DLPackStreams::kNone},
                                                   {2, DeviceType::kCuda, DLPackStreams::kCuda}};
constinit std::atomic<int> count{2};
constinit std::mutex adding;

template <typename Is>
const DLPackDevice* Find(const Is& is) {
  for (int i = 0; i < count.load(std::memory_order_acquire); ++i) {
    if (is(entries[i])) return &entries[i];
  }
  return nullptr;
}

}  // namespace

DLPackDeviceRegistrar::DLPackDeviceRegistrar(int32_t code, DeviceType type, DLPackStreams streams) {
  if (code == kPinnedHost) {
    std::fprintf(stderr,
                 "tidepool: DLPack's device type %d is to be %s devices, but it is page-locked "
                 "host memory of CUDA\n",
                 code, DeviceTypeName(type).c_str());
    std::abort();
  }
  std::lock_guard<std::mutex> lock(adding);
  const DLPackDevice* const known =
      Find([&](const DLPackDevice& entry) { return entry.code == code || entry.type == type; });
  if (known != nullptr) {
    std::fprintf(
        stderr,
        "tidepool: DLPack's device type %d is to be %s devices, but %d is %s devices already\n",
        code, DeviceTypeName(type).c_str(), known->code, DeviceTypeName(known->type).c_str());
    std::abort();
  }
  // No more than there are types: each is there once.
  const int at = count.load(std::memory_order_relaxed);
  entries[at] = {code, type, streams};
  count.store(at + 1, std::memory_order_release);
}

const DLPackDevice* FindDLPackDevice(int32_t code) {
  return Find([&](const DLPackDevice& entry) { return entry.code == code; });
}

const DLPackDevice* FindDLPackDevice(DeviceType type) {
  return Find([&](const DLPackDevice& entry) { return entry.type == type; });
}

std::string DescribeDLPackDevices() {
  std::string text;
  for (int i = 0; i < count.load(std::memory_order_acquire); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", entries[i].code, " (",
                    DeviceTypeName(entries[i].type), ")");
  }
  return text;
}

}  // namespace tidepool
