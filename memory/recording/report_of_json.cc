// What the ledger told as JSON, as a report.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/recording/record_report.h"

namespace tidepool {
namespace {

using Json = nlohmann::json;
using Part = RecordReport::Part;

constexpr uint64_t kMostJsonBytes = uint64_t{64} << 20;

class JsonReport {
 public:
  JsonReport(const std::string& file) : file_(file) { report_.file = file; }

  RecordReport Of(const std::string& text) {
    Json json;
    try {
      json = Json::parse(text);
    } catch (const Json::parse_error& error) {
      ThrowDataLoss(
          absl::StrCat(file_, ": offset ", error.byte, ": found no JSON (", OneLine(error.what()),
                       "), expected a record or the JSON of a memory snapshot or timeline"));
    }
    if (json.is_object() && json.contains("samples")) return Timeline(json);
    if (json.is_object() && json.contains("owners") && json.contains("devices"))
      return Snapshot(json);
    ThrowDataLoss(absl::StrCat(
        file_,
        ": offset 0: found JSON without \"samples\" or \"owners\" and \"devices\", expected "
        "what MemorySnapshot::ToJson() or MemoryTimeline::ToJson() writes"));
  }

 private:
  [[noreturn]] void Missing(const std::string& what, const char* expected) {
    ThrowDataLoss(absl::StrCat(file_, ": offset 0: found no ", what, ", expected ", expected));
  }
  const Json& Member(const Json& of, const std::string& where, const char* name) {
    if (!of.is_object() || !of.contains(name)) Missing(absl::StrCat(where, ".", name), "it");
    return of[name];
  }
  const Json& Array(const Json& of, const std::string& where, const char* name) {
    const Json& array = Member(of, where, name);
    if (!array.is_array()) Missing(absl::StrCat(where, ".", name), "an array");
    return array;
  }
  int64_t Number(const Json& of, const std::string& where, const char* name) {
    const Json& number = Member(of, where, name);
    if (!number.is_number_integer() ||
        (number.is_number_unsigned() &&
         number.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX / 4)) ||
        number.get<int64_t>() < -(INT64_MAX / 4)) {
      Missing(absl::StrCat(where, ".", name), "a whole number of 61 bits");
    }
    return number.get<int64_t>();
  }
  std::string Text(const Json& of, const std::string& where, const char* name) {
    const Json& text = Member(of, where, name);
    if (!text.is_string()) Missing(absl::StrCat(where, ".", name), "a text");
    return text.get<std::string>();
  }
  Part Usage(const Json& of, const std::string& where) {
    Part part;
    part.at_end_bytes = Number(of, where, "current_bytes");
    part.peak_bytes = part.at_peak_bytes = Number(of, where, "peak_bytes");
    return part;
  }
  static void Add(Part& to, const Part& part) {
    // Saturating: a file may say anything.
    const auto add = [](int64_t& sum, int64_t more) {
      if (__builtin_add_overflow(sum, more, &sum)) sum = more > 0 ? INT64_MAX : INT64_MIN;
    };
    add(to.peak_bytes, part.peak_bytes);
    add(to.at_peak_bytes, part.at_peak_bytes);
    add(to.at_end_bytes, part.at_end_bytes);
  }

  // In a tier, or in spill files; nothing is said of those in which nothing ever waited.
  void Waits(const Json& of, const std::string& where, const char* now) {
    const std::string tier = Text(of, where, "tier");
    Part part;
    part.at_end_bytes = Number(of, where, now);
    part.peak_bytes = part.at_peak_bytes = Number(of, where, "peak_bytes");
    if (part.at_end_bytes != 0 || part.peak_bytes != 0) Add(report_.waiting[tier], part);
  }
  // By then, of a timeline: what was said last counts.
  void WaitsNow(const std::string& tier, int64_t bytes) {
    Part& part = report_.waiting[tier];
    part.peak_bytes = part.at_peak_bytes = std::max(part.peak_bytes, bytes);
    part.at_end_bytes = bytes;
  }

  RecordReport Snapshot(const Json& json) {
    report_.what = "memory snapshot";
    for (const Json& device : Array(json, "snapshot", "devices")) {
      const std::string name = Text(device, "device", "device");
      const Part total = Usage(Member(device, "device", "total"), "total");
      Add(report_.devices[name], total);
      Add(report_.all, total);
      const Json& kinds = Member(device, "device", "kinds");
      if (!kinds.is_object()) Missing("device.kinds", "an object");
      for (const auto& [kind, usage] : kinds.items()) {
        const Part part = Usage(usage, kind);
        if (part.peak_bytes != 0 || part.at_end_bytes != 0) Add(report_.kinds[kind], part);
      }
    }
    for (const Json& owner : Array(json, "snapshot", "owners")) {
      const std::string tag = Text(owner, "owner", "tag");
      const std::string name = Text(owner, "owner", "owner") + (tag.empty() ? "" : " #" + tag);
      Add(report_.owners[name], Usage(Member(owner, "owner", "total"), "total"));
    }
    // Older files have neither.
    if (json.contains("spilled")) Waits(json["spilled"], "spilled", "used_bytes");
    if (json.contains("spill_tiers")) {
      for (const Json& tier : Array(json, "snapshot", "spill_tiers"))
        Waits(tier, "spill tier", "waiting_bytes");
    }
    return std::move(report_);
  }

  RecordReport Timeline(const Json& json) {
    report_.what = "memory timeline";
    std::map<std::string, Part> last;
    for (const Json& sample : Array(json, "timeline", "samples")) {
      const std::string device = Text(sample, "sample", "device");
      int64_t sum = 0;
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        const char* const name = MemoryKindName(static_cast<MemoryKind>(kind));
        const int64_t bytes = Number(sample, "sample", name);
        if (__builtin_add_overflow(sum, bytes, &sum)) Missing("sums of 64 bits", "them");
        Part& part = report_.kinds[name];
        // Of the device that had the most of it.
        part.peak_bytes = part.at_peak_bytes = std::max(part.peak_bytes, bytes);
        part.at_end_bytes = bytes;
      }
      Part& part = report_.devices[device];
      part.peak_bytes = part.at_peak_bytes =
          std::max({part.peak_bytes, sum, Number(sample, "sample", "in_use_highest")});
      part.at_end_bytes = sum;
      if (sample.contains("spilled")) WaitsNow("file", Number(sample, "sample", "spilled"));
    }
    if (json.contains("tier_samples")) {
      for (const Json& sample : Array(json, "timeline", "tier_samples")) {
        const std::string device = Text(sample, "tier sample", "device");
        WaitsNow(device, Number(sample, "tier sample", "waiting_bytes"));
      }
    }
    std::erase_if(report_.waiting, [](const auto& tier) { return tier.second.peak_bytes == 0; });
    for (const auto& [device, part] : report_.devices) Add(report_.all, part);
    std::erase_if(report_.kinds, [](const auto& kind) { return kind.second.peak_bytes == 0; });
    return std::move(report_);
  }

  const std::string& file_;
  RecordReport report_;
};

}  // namespace

RecordReport ReportOfJson(const std::string& text, const std::string& file) {
  return JsonReport(file).Of(text);
}

RecordReport ReadReport(const std::string& path) {
  std::string text;
  {
    FileReader file(path);
    char first = 0;
    while (file.Read({reinterpret_cast<std::byte*>(&first), 1}) == 1) {
      if (first != ' ' && first != '\n' && first != '\r' && first != '\t') break;
    }
    if (first != '{' && first != '[') return ReportOf(ReadRecord(path), path);
    if (file.size() > kMostJsonBytes) {
      ThrowResourceExhausted(absl::StrCat(file.name(), ": found ", file.size(),
                                          " bytes of JSON, expected at most ", kMostJsonBytes));
    }
    text.resize(file.size());
    file.ReadExactlyAt(0, {reinterpret_cast<std::byte*>(text.data()), text.size()}, "JSON");
  }
  return ReportOfJson(text, OneLine(path));
}

}  // namespace tidepool
