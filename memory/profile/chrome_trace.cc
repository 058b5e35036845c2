#include "tidepool/memory/profile/chrome_trace.h"

#include <cinttypes>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/profile/detail_levels.h"
#include "tidepool/memory/profile/profile_changes.h"

namespace tidepool {
namespace {

constexpr int64_t kProcess = 1;

class Writer {
 public:
  Writer(const ProfileData& data, bool by_peaks) : data_(data), by_peaks_(by_peaks) {}

  std::string Write(const std::string& note) {
    json_.BeginObject();
    json_.Member("displayTimeUnit", "ns");
    json_.Key("otherData");
    json_.BeginObject();
    json_.Member("title", data_.title);
    json_.Member("began", data_.began);
    std::string notes = note;
    for (const std::string& more : data_.notes)
      absl::StrAppend(&notes, notes.empty() ? "" : "; ", more);
    json_.Member("notes", notes);
    json_.EndObject();
    json_.Key("traceEvents");
    json_.BeginArray();
    Name("process_name", 0, data_.title);
    for (size_t place = 0; place < data_.places.size(); ++place) {
      Name("thread_name", static_cast<int64_t>(place) + 1, data_.strings[data_.places[place].name]);
    }
    Counters();
    for (const ProfileCycles& cycles : data_.cycles) Slice(cycles);
    json_.EndArray();
    json_.EndObject();
    return std::move(json_).Take();
  }

 private:
  void Begin(absl::string_view name, const char* phase, int64_t thread) {
    json_.BeginObject();
    json_.Member("name", name);
    json_.Member("ph", phase);
    json_.Member("pid", kProcess);
    json_.Member("tid", thread);
  }
  // In microseconds, without rounding.
  void Time(const char* key, int64_t nanoseconds) {
    std::string text;
    AppendFormat(&text, "%" PRId64 ".%03d", nanoseconds / 1000,
                 static_cast<int>(nanoseconds % 1000));
    json_.Key(key);
    json_.Literal(text);
  }
  void Name(const char* what, int64_t thread, const std::string& name) {
    Begin(what, "M", thread);
    json_.Key("args");
    json_.BeginObject();
    json_.Member("name", name);
    json_.EndObject();
    json_.EndObject();
  }

  void Counters() {
    const std::vector<ProfileChange> changes = ChangesOf(data_, by_peaks_);
    std::vector<std::vector<int64_t>> bytes(data_.devices.size(),
                                            std::vector<int64_t>(data_.kinds.size()));
    std::vector<std::vector<bool>> used(data_.devices.size(),
                                        std::vector<bool>(data_.kinds.size()));
    for (const ProfileChange& change : changes) used[change.device][change.kind] = true;
    std::vector<std::string> tracks;
    for (size_t device = 0; device < data_.devices.size(); ++device) {
      tracks.push_back(absl::StrCat(data_.tiers[device], " of ", data_.devices[device]));
    }
    std::vector<bool> changed(data_.devices.size());
    for (size_t i = 0; i < changes.size(); ++i) {
      bytes[changes[i].device][changes[i].kind] += changes[i].bytes;
      changed[changes[i].device] = true;
      if (i + 1 < changes.size() && changes[i + 1].time == changes[i].time) continue;
      for (size_t device = 0; device < changed.size(); ++device) {
        if (!changed[device]) continue;
        changed[device] = false;
        Begin(tracks[device], "C", 0);
        Time("ts", changes[i].time);
        json_.Key("args");
        json_.BeginObject();
        for (size_t kind = 0; kind < data_.kinds.size(); ++kind) {
          if (used[device][kind]) json_.Member(data_.kinds[kind], bytes[device][kind]);
        }
        json_.EndObject();
        json_.EndObject();
      }
    }
  }

  void Slice(const ProfileCycles& cycles) {
    const ProfileCycleKind& kind = data_.cycle_kinds[cycles.kind];
    const uint64_t last = cycles.first_generation + cycles.count - 1;
    Begin(cycles.count == 1 ? absl::StrCat("cycle ", last)
                            : absl::StrCat("cycles ", cycles.first_generation, " to ", last),
          "X", int64_t{kind.place} + 1);
    Time("ts", cycles.begin);
    Time("dur", cycles.end - cycles.begin);
    json_.Key("args");
    json_.BeginObject();
    json_.Member("requests", kind.requests.size());
    json_.Member("requested_bytes", kind.requested);
    json_.Member("bound_bytes", kind.bound);
    json_.Member("peak_bytes", kind.peak);
    json_.Member("outside", kind.outside);
    json_.Member("missed", kind.misses);
    json_.Member("leaked", kind.leaked);
    json_.EndObject();
    json_.EndObject();
  }

  const ProfileData& data_;
  const bool by_peaks_;
  JsonWriter json_;
};

// Of a change and of a slice, at most, names aside.
constexpr size_t kBytesOfChange = 330, kBytesOfSlice = 260;

}  // namespace

std::string ChromeTrace(const ProfileData& data, size_t most_bytes) {
  constexpr size_t kLeast = 100'000;
  if (most_bytes < kLeast) ThrowInvalidArgument("ChromeTrace: most_bytes is below 100000");
  const auto fits = [&](const ProfileData& of, bool by_peaks) {
    return NumChanges(of, by_peaks) / 2 * kBytesOfChange + of.cycles.size() * kBytesOfSlice <=
           most_bytes;
  };
  if (fits(data, false)) return Writer(data, false).Write("");
  const std::string by_peaks = "cycles count by their peaks, to keep the file small";
  if (fits(data, true)) return Writer(data, true).Write(by_peaks);
  const size_t half = most_bytes / 2;
  DetailLimits limits;
  limits.steps = half / kBytesOfChange;
  limits.cycles = half / (kBytesOfSlice + 2 * kBytesOfChange);
  for (;;) {
    std::string trace = Writer(Reduced(data, limits), true).Write(by_peaks);
    if (trace.size() <= most_bytes) return trace;
    limits.steps /= 2;
    limits.cycles /= 2;
    if (limits.steps == 0) ThrowInternal("ChromeTrace: a trace without changes is too large");
  }
}

void WriteChromeTrace(const ProfileData& data, const std::string& path) {
  AtomicFile file(path);
  file.Append(ChromeTrace(data));
  file.Commit();
}

}  // namespace tidepool
