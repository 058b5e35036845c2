// Where memory lives and kernels run. A device is a number of a type; types are known by name, and a
// backend adds its own:
//
//   const Device kMine{DeviceType::Named("mine"), 0};    // "mine:0"
//
// Naming a type makes it known; its memory comes with a provider (provider/device_provider.h), its
// kernels with ndarray/kernel/registry.h. The host's and CUDA's are known without their backends.
//
// Threads: any; static initialisers too. Cost: a word, but for the functions that take or give names.
#ifndef TIDEPOOL_MEMORY_DEVICE_H_
#define TIDEPOOL_MEMORY_DEVICE_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidepool {

// Most types that there can be, and devices of one type: their numbers are below this.
inline constexpr int kMaxDeviceTypes = 16;
inline constexpr int kMaxDevicesPerType = 16;

// A type of devices, as a number of this process. Compared and ordered by it.
class DeviceType {
 public:
  // Those that are known without a backend.
  static const DeviceType kHost;
  static const DeviceType kCuda;

  constexpr DeviceType() = default;  // the host's

  // The type of that name, made known when there is none; it stays known. At most 31 lower case
  // letters, digits and underscores, a letter first: else kInvalidArgument. kResourceExhausted
  // beyond kMaxDeviceTypes.
  static DeviceType Named(std::string_view name);
  // Makes none known.
  static std::optional<DeviceType> Find(std::string_view name) noexcept;
  // In the order in which they became known. kInvalidArgument from count() on.
  static DeviceType Numbered(int number);
  static int count() noexcept;

  constexpr int number() const { return number_; }  // from 0, below kMaxDeviceTypes

  friend constexpr auto operator<=>(DeviceType, DeviceType) = default;

 private:
  explicit constexpr DeviceType(uint8_t number) : number_(number) {}
  uint8_t number_ = 0;
};

inline constexpr DeviceType DeviceType::kHost{uint8_t{0}};
inline constexpr DeviceType DeviceType::kCuda{uint8_t{1}};

// A device: the host unless said otherwise. That there is one is found where it is used.
struct Device {
  DeviceType type = DeviceType::kHost;  // one that was made known
  uint8_t index = 0;  // of its type, below kMaxDevicesPerType; the host has 0 alone

  friend constexpr bool operator==(Device, Device) = default;
};

// The host's memory.
constexpr Device Host() { return Device{}; }

// The name it was made known by: "cuda".
std::string DeviceTypeName(DeviceType type);
// "host", "cuda:1", ...
std::string DeviceName(Device device);
// The other way; the first one of its type without a number ("cuda"). kInvalidArgument for what is
// no name, for types nobody has named, and from kMaxDevicesPerType on. Whether there is such a
// device is not looked at.
Device DeviceNamed(std::string_view text);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_DEVICE_H_
