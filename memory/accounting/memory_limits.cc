#include "tidepool/memory/accounting/memory_limits.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// "host", "cuda", "cuda:1"; nothing for what is no device's name. Of a type that nobody has named only with a number, so that
// the name of something else is not taken for one.
std::optional<Device> DeviceOf(absl::string_view name) {
  if (name == "host") return Host();
  if (!absl::StrContains(name, ':') && !DeviceType::Find(std::string(name)).has_value())
    return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(':', 1));
  int index = 0;
  if (name.size() > parts.first.size() &&
      (!absl::SimpleAtoi(parts.second, &index) || index < 0 || index >= kMaxDevicesPerType)) {
    return std::nullopt;
  }
  try {
    return Device{DeviceType::Named(std::string(parts.first)), static_cast<uint8_t>(index)};
  } catch (const Error&) {
    return std::nullopt;  // no name, or there are too many
  }
}

bool ConsumeWord(absl::string_view* text, absl::string_view word) {
  absl::string_view rest = *text;
  if (!absl::ConsumePrefix(&rest, word) || rest.empty() || !absl::ascii_isspace(rest[0]))
    return false;
  *text = absl::StripAsciiWhitespace(rest);
  return true;
}

MemoryLimit LimitOfText(absl::string_view what, absl::string_view entry) {
  MemoryLimit limit;
  absl::string_view text = absl::StripAsciiWhitespace(entry);
  const auto refuse = [&](absl::string_view found, absl::string_view expected) {
    ThrowInvalidArgument(absl::StrCat(what, ": \"", entry.substr(0, 100), "\": found ", found,
                                      ", expected ", expected));
  };
  limit.is_soft = ConsumeWord(&text, "soft");
  const size_t equals = text.rfind('=');
  if (equals == absl::string_view::npos) {
    limit.bytes = BytesOfText(what, text);
    return limit;
  }
  absl::string_view of = absl::StripAsciiWhitespace(text.substr(0, equals));
  const absl::string_view amount = absl::StripAsciiWhitespace(text.substr(equals + 1));
  if (ConsumeWord(&of, "owner")) {
    limit.of = MemoryLimit::Of::kOwner;
    const size_t on = of.rfind(" on ");
    if (on != absl::string_view::npos) {
      if (const auto device = DeviceOf(absl::StripAsciiWhitespace(of.substr(on + 4)))) {
        limit.device = *device;
        of = absl::StripAsciiWhitespace(of.substr(0, on));
      }
    }
    limit.owner = std::string(of);
    for (const absl::string_view name : absl::StrSplit(of, '/')) {
      if (name.empty()) refuse(absl::StrCat("owner \"", of, "\""), "names with / between them");
    }
  } else if (of != "process") {
    const std::optional<Device> device = DeviceOf(of);
    if (!device.has_value()) {
      refuse(absl::StrCat("\"", of, "\" in front of ="),
             absl::StrCat("a device (host, cuda:0 to ", kMaxDevicesPerType - 1,
                          ", ...), process or \"owner NAME\""));
    }
    limit.of = MemoryLimit::Of::kDevice;
    limit.device = *device;
  }
  if (limit.device != Host() && absl::EndsWith(amount, "%")) {
    refuse(absl::StrCat("a share of ", DeviceName(limit.device)),
           "bytes: shares are of the machine's memory");
  }
  limit.bytes = BytesOfText(absl::StrCat(what, ": the limit of ", of), amount);
  return limit;
}

}  // namespace

std::vector<MemoryLimit> MemoryLimitsOfText(absl::string_view what, absl::string_view text) {
  std::vector<MemoryLimit> limits;
  if (absl::StripAsciiWhitespace(text).empty()) return limits;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const MemoryLimit limit = LimitOfText(what, entry);
    const auto same = std::find_if(limits.begin(), limits.end(), [&](MemoryLimit other) {
      other.bytes = limit.bytes;
      return other == limit;
    });
    if (same != limits.end()) {
      ThrowInvalidArgument(absl::StrCat(what, ": found a second limit, \"",
                                        absl::StripAsciiWhitespace(entry),
                                        "\", of the same, expected one"));
    }
    limits.push_back(limit);
  }
  return limits;
}

MemoryOwner& MemoryOwnerAt(absl::string_view path) {
  MemoryOwner* owner = &MemoryOwner::Process();
  for (const absl::string_view name : absl::StrSplit(path, '/'))
    owner = &owner->Child(std::string(name));
  return *owner;
}

void SetMemoryLimits(const std::vector<MemoryLimit>& limits) {
  MemoryBudget& budget = MemoryBudget::Global();
  for (const MemoryLimit& limit : limits) {
    switch (limit.of) {
      case MemoryLimit::Of::kProcess:
        limit.is_soft ? budget.SetProcessSoftLimit(limit.bytes)
                      : budget.SetProcessLimit(limit.bytes);
        break;
      case MemoryLimit::Of::kDevice:
        limit.is_soft ? budget.SetDeviceSoftLimit(limit.device, limit.bytes)
                      : budget.SetDeviceLimit(limit.device, limit.bytes);
        break;
      case MemoryLimit::Of::kOwner: {
        MemoryOwner& owner = MemoryOwnerAt(limit.owner);
        limit.is_soft ? budget.SetOwnerSoftLimit(owner, limit.device, limit.bytes)
                      : budget.SetOwnerLimit(owner, limit.device, limit.bytes);
        break;
      }
    }
  }
}

}  // namespace tidepool
