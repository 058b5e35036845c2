// Reports and differences as text and JSON.
#include "tidepool/memory/recording/record_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/io/append_format.h"

namespace tidepool {
namespace {

using Part = RecordReport::Part;

std::string Bytes(int64_t bytes) {
  std::string text;
  const double value = static_cast<double>(bytes);
  const double size = value < 0 ? -value : value;
  if (size < 10240) return absl::StrCat(bytes, " B");
  AppendFixed(&text, size < 1e8 ? value / (1 << 10) : value / (1 << 20), 1);
  return text + (size < 1e8 ? " KiB" : " MiB");
}

// Names in the first column; long ones lose their beginning, as their end tells them apart.
std::string Fitting(const std::string& name, size_t columns) {
  if (name.empty()) return "(nobody's)";
  return name.size() <= columns ? name : "..." + name.substr(name.size() - (columns - 3));
}

constexpr size_t kNameColumns = 40;

template <typename Key>
std::vector<std::pair<Key, Part>> Largest(const std::map<Key, Part>& parts, int most) {
  std::vector<std::pair<Key, Part>> sorted(parts.begin(), parts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.at_peak_bytes, a.second.requested_bytes) >
           std::pair(b.second.at_peak_bytes, b.second.requested_bytes);
  });
  if (sorted.size() > static_cast<size_t>(most)) sorted.resize(static_cast<size_t>(most));
  return sorted;
}

std::string NameOf(const std::string& name) { return name; }
std::string NameOf(uint64_t size) { return absl::StrCat(size); }

template <typename Key>
void Table(const char* title, const std::map<Key, Part>& parts, int most, bool counts,
           std::string* out) {
  if (parts.empty()) return;
  AppendFormat(out, "\n%-40s %12s %12s %12s", title, "at the peak", "own peak", "at the end");
  absl::StrAppend(out, counts ? "   requests" : "", "\n");
  for (const auto& [key, part] : Largest(parts, most)) {
    AppendFormat(out, "%-40s %12s %12s %12s", Fitting(NameOf(key), kNameColumns).c_str(),
                 Bytes(part.at_peak_bytes).c_str(), Bytes(part.peak_bytes).c_str(),
                 Bytes(part.at_end_bytes).c_str());
    if (counts) AppendFormat(out, " %10lld", static_cast<long long>(part.requests));
    absl::StrAppend(out, "\n");
  }
  if (parts.size() > static_cast<size_t>(most))
    absl::StrAppend(out, "... ", parts.size() - most, " more\n");
}

template <typename Key>
void AddParts(JsonWriter& json, const char* name, const std::map<Key, Part>& parts, int most) {
  json.Key(name);
  json.BeginArray();
  for (const auto& [key, part] : Largest(parts, most)) {
    json.BeginObject();
    json.Member("name", NameOf(key));
    json.Member("at_peak_bytes", part.at_peak_bytes);
    json.Member("peak_bytes", part.peak_bytes);
    json.Member("at_end_bytes", part.at_end_bytes);
    json.Member("requests", part.requests);
    json.Member("requested_bytes", part.requested_bytes);
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

std::string RecordReport::ToString(int most) const {
  std::string out = absl::StrCat(file, ": ", what, "\n");
  if (!remark.empty()) absl::StrAppend(&out, "  ", remark, "\n");
  const bool is_record = !lifetimes.empty();
  if (is_record) {
    absl::StrAppend(&out, "  ", all.requests, " requests of ", Bytes(all.requested_bytes), ", ",
                    threads, threads == 1 ? " thread, " : " threads, ", cycles, " marked cycles\n");
    if (unknown_frees > 0)
      absl::StrAppend(&out, "  ", unknown_frees, " releases of blocks from before\n");
  }
  absl::StrAppend(&out, "  at most ", Bytes(all.peak_bytes), " (", all.peak_bytes,
                  " bytes), at the end ", Bytes(all.at_end_bytes), "\n");
  Table("device", devices, most, is_record, &out);
  Table("kind", kinds, most, is_record, &out);
  Table("owner", owners, most, is_record, &out);
  Table("size", sizes, most, is_record, &out);
  Table("waiting in", waiting, most, is_record, &out);
  if (is_record) {
    AppendFormat(&out, "\n%-40s %12s %12s\n", "lifetime in requests", "blocks", "bytes");
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      const bool never = lifetimes[i].at_least == UINT64_MAX;
      const bool last = i + 2 >= lifetimes.size();
      const bool one = !never && lifetimes[i + 1].at_least == lifetimes[i].at_least + 1;
      const std::string name =
          never  ? "never released"
          : one  ? absl::StrCat(lifetimes[i].at_least)
          : last ? absl::StrCat(lifetimes[i].at_least, " and more")
                 : absl::StrCat(lifetimes[i].at_least, " to ", lifetimes[i + 1].at_least - 1);
      AppendFormat(&out, "%-40s %12lld %12s\n", name.c_str(),
                   static_cast<long long>(lifetimes[i].blocks), Bytes(lifetimes[i].bytes).c_str());
    }
  }
  return out;
}

void RecordReport::AddTo(JsonWriter& json, int most) const {
  json.Member("file", file);
  json.Member("what", what);
  json.Member("remark", remark);
  json.Member("requests", all.requests);
  json.Member("requested_bytes", all.requested_bytes);
  json.Member("peak_bytes", all.peak_bytes);
  json.Member("at_end_bytes", all.at_end_bytes);
  json.Member("threads", threads);
  json.Member("cycles", cycles);
  json.Member("unknown_frees", unknown_frees);
  AddParts(json, "devices", devices, most);
  AddParts(json, "kinds", kinds, most);
  AddParts(json, "owners", owners, most);
  AddParts(json, "sizes", sizes, most);
  AddParts(json, "waiting", waiting, most);
  json.Key("lifetimes");
  json.BeginArray();
  for (const Lifetime& line : lifetimes) {
    json.BeginObject();
    if (line.at_least != UINT64_MAX) json.Member("at_least_requests", line.at_least);
    json.Member("blocks", line.blocks);
    json.Member("bytes", line.bytes);
    json.EndObject();
  }
  json.EndArray();
}

namespace {

struct Change {
  std::string name;
  Part before, after;
  int64_t peak() const { return after.at_peak_bytes - before.at_peak_bytes; }
  int64_t requests() const { return after.requests - before.requests; }
};

template <typename Key>
std::vector<Change> Changes(const std::map<Key, Part>& before, const std::map<Key, Part>& after,
                            int most) {
  std::map<Key, Change> all;
  for (const auto& [key, part] : before) all[key].before = part;
  for (const auto& [key, part] : after) all[key].after = part;
  std::vector<Change> changes;
  for (auto& [key, change] : all) {
    change.name = NameOf(key);
    if (change.peak() != 0 || change.requests() != 0 ||
        change.after.at_end_bytes != change.before.at_end_bytes) {
      changes.push_back(change);
    }
  }
  const auto size = [](int64_t value) { return value < 0 ? -value : value; };
  std::stable_sort(changes.begin(), changes.end(), [&](const Change& a, const Change& b) {
    return std::pair(size(a.peak()), size(a.requests())) >
           std::pair(size(b.peak()), size(b.requests()));
  });
  if (changes.size() > static_cast<size_t>(most)) changes.resize(static_cast<size_t>(most));
  return changes;
}

std::string Signed(int64_t bytes) { return (bytes > 0 ? "+" : "") + Bytes(bytes); }

template <typename Key>
void ChangeTable(const char* title, const std::map<Key, Part>& before,
                 const std::map<Key, Part>& after, int most, std::string* out) {
  const std::vector<Change> changes = Changes(before, after, most);
  if (changes.empty()) return;
  AppendFormat(out, "\n%-40s %13s %13s %13s %10s\n", title, "before, peak", "change", "at the end",
               "requests");
  for (const Change& change : changes) {
    AppendFormat(out, "%-40s %13s %13s %13s %+10lld\n", Fitting(change.name, kNameColumns).c_str(),
                 Bytes(change.before.at_peak_bytes).c_str(), Signed(change.peak()).c_str(),
                 Signed(change.after.at_end_bytes - change.before.at_end_bytes).c_str(),
                 static_cast<long long>(change.requests()));
  }
}

template <typename Key>
void AddChanges(JsonWriter& json, const char* name, const std::map<Key, Part>& before,
                const std::map<Key, Part>& after, int most) {
  json.Key(name);
  json.BeginArray();
  for (const Change& change : Changes(before, after, most)) {
    json.BeginObject();
    json.Member("name", change.name);
    json.Member("at_peak_bytes", change.peak());
    json.Member("at_end_bytes", change.after.at_end_bytes - change.before.at_end_bytes);
    json.Member("requests", change.requests());
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

std::string DifferenceToString(const RecordReport& before, const RecordReport& after, int most) {
  std::string out =
      absl::StrCat("from ", before.file, " to ", after.file, "\n  at most ",
                   Bytes(before.all.peak_bytes), ", then ", Bytes(after.all.peak_bytes), ": ",
                   Signed(after.all.peak_bytes - before.all.peak_bytes), "\n  at the end ",
                   Bytes(before.all.at_end_bytes), ", then ", Bytes(after.all.at_end_bytes), ": ",
                   Signed(after.all.at_end_bytes - before.all.at_end_bytes), "\n  requests ",
                   before.all.requests, ", then ", after.all.requests, "\n");
  const size_t length = out.size();
  ChangeTable("device", before.devices, after.devices, most, &out);
  ChangeTable("kind", before.kinds, after.kinds, most, &out);
  ChangeTable("owner", before.owners, after.owners, most, &out);
  ChangeTable("size", before.sizes, after.sizes, most, &out);
  ChangeTable("waiting in", before.waiting, after.waiting, most, &out);
  if (out.size() == length) absl::StrAppend(&out, "\nno difference\n");
  return out;
}

void AddDifferenceTo(JsonWriter& json, const RecordReport& before, const RecordReport& after,
                     int most) {
  json.Member("before", before.file);
  json.Member("after", after.file);
  json.Member("peak_bytes", after.all.peak_bytes - before.all.peak_bytes);
  json.Member("at_end_bytes", after.all.at_end_bytes - before.all.at_end_bytes);
  json.Member("requests", after.all.requests - before.all.requests);
  AddChanges(json, "devices", before.devices, after.devices, most);
  AddChanges(json, "kinds", before.kinds, after.kinds, most);
  AddChanges(json, "owners", before.owners, after.owners, most);
  AddChanges(json, "sizes", before.sizes, after.sizes, most);
  AddChanges(json, "waiting", before.waiting, after.waiting, most);
}

}  // namespace tidepool
