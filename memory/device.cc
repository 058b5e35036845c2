#include "tidepool/memory/device.h"

#include <atomic>
#include <charconv>
#include <cstring>
#include <memory>

#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kMostLetters = 31;

// By number, without gaps, and never changed once they are there. Before any static initialiser.
constinit std::atomic<const char*> names[kMaxDeviceTypes] = {{"host"}, {"cuda"}};

std::string Quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string KnownNames() {
  std::string known;
  for (int number = 0; number < DeviceType::count(); ++number) {
    known += (number == 0 ? "" : ", ") + DeviceTypeName(DeviceType::Numbered(number));
  }
  return known;
}

bool IsName(std::string_view name) {
  if (name.empty() || name.size() > kMostLetters || name[0] < 'a' || name[0] > 'z') return false;
  for (const char c : name) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return true;
}

}  // namespace

DeviceType DeviceType::Named(std::string_view name) {
  if (!IsName(name)) {
    ThrowInvalidArgument("device type: found the name " + Quoted(name) + ", expected at most " +
                         std::to_string(kMostLetters) +
                         " lower case letters, digits and underscores, a letter first");
  }
  std::unique_ptr<char[]> made;
  for (int number = 0; number < kMaxDeviceTypes; ++number) {
    const char* known = names[number].load(std::memory_order_acquire);
    if (known == nullptr) {
      if (made == nullptr) {
        made = std::make_unique<char[]>(name.size() + 1);
        std::memcpy(made.get(), name.data(), name.size());
      }
      if (names[number].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
        made.release();  // the table's
        return DeviceType(static_cast<uint8_t>(number));
      }
    }
    if (name == known) return DeviceType(static_cast<uint8_t>(number));
  }
  ThrowResourceExhausted("device type: there is no room for " + Quoted(name) + ": the " +
                         std::to_string(kMaxDeviceTypes) + " there may be are " + KnownNames());
}

std::optional<DeviceType> DeviceType::Find(std::string_view name) noexcept {
  for (int number = 0; number < kMaxDeviceTypes; ++number) {
    const char* const known = names[number].load(std::memory_order_acquire);
    if (known == nullptr) break;
    if (name == known) return DeviceType(static_cast<uint8_t>(number));
  }
  return std::nullopt;
}

DeviceType DeviceType::Numbered(int number) {
  if (number < 0 || number >= count()) {
    ThrowInvalidArgument("device type: found number " + std::to_string(number) +
                         ", expected 0 to " + std::to_string(count() - 1));
  }
  return DeviceType(static_cast<uint8_t>(number));
}

int DeviceType::count() noexcept {
  int number = 0;
  while (number < kMaxDeviceTypes && names[number].load(std::memory_order_acquire) != nullptr) {
    ++number;
  }
  return number;
}

std::string DeviceTypeName(DeviceType type) {
  const int number = type.number();
  const char* const name =
      number < kMaxDeviceTypes ? names[number].load(std::memory_order_acquire) : nullptr;
  // One that was not had by Named().
  return name != nullptr ? name : "unnamed_" + std::to_string(number);
}

std::string DeviceName(Device device) {
  std::string name = DeviceTypeName(device.type);
  return device.type == DeviceType::kHost ? name : name + ":" + std::to_string(device.index);
}

Device DeviceNamed(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<DeviceType> type = DeviceType::Find(text.substr(0, colon));
  if (!type.has_value()) {
    ThrowInvalidArgument("found device " + Quoted(text) + ", expected one of the types " +
                         KnownNames());
  }
  int index = 0;
  if (colon != std::string_view::npos) {
    const char* const end = text.data() + text.size();
    const auto [after, error] = std::from_chars(text.data() + colon + 1, end, index);
    if (error != std::errc() || after != end || index < 0 || index >= kMaxDevicesPerType)
      index = -1;
    if (*type == DeviceType::kHost) index = -1;  // it has no numbers
  }
  if (index < 0) {
    ThrowInvalidArgument("found device " + Quoted(text) + ", expected " +
                         (*type == DeviceType::kHost
                              ? "host: there is one"
                              : DeviceTypeName(*type) + " or " + DeviceTypeName(*type) +
                                    ":0 to :" + std::to_string(kMaxDevicesPerType - 1)));
  }
  return {*type, static_cast<uint8_t>(index)};
}

}  // namespace tidepool
