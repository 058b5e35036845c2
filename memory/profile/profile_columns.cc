// The data of a page. The order of the columns' numbers, row by row:
//
//   steps            time since the one before, bytes (signed), device, owner, 2 * kind + at_start
//   arrays           born since the one before (signed), lifetime + 1 (0: alive at the end), bytes, offset + 1, name, site,
//                    owner, place, kind, flags
//   kinds of cycles  their requests: born since the one before, lifetime, released after so many more requests than
//                    there were then, bytes, taken - bytes, offset + 1, name, site, owner, flags
//   cycles           kind, count, generation (signed, since the one before), begin since the one before, duration
#include <cstdint>

#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/profile/profile_page.h"

namespace tidepool::internal {
namespace {

class Columns {
 public:
  void Put(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void PutSigned(int64_t value) {
    Put((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

template <typename Values>
void Strings(JsonWriter& json, const char* key, const Values& values) {
  json.Key(key);
  json.BeginArray();
  for (const std::string& value : values) json.String(value);
  json.EndArray();
}

}  // namespace

EncodedProfile EncodeProfile(const ProfileData& data) {
  JsonWriter json;
  json.BeginObject();
  json.Member("version", 1);
  json.Member("title", data.title);
  json.Member("subtitle", data.subtitle);
  json.Member("began", data.began);
  json.Member("duration", data.duration);
  Strings(json, "strings", data.strings);
  Strings(json, "kinds", data.kinds);
  Strings(json, "devices", data.devices);
  Strings(json, "tiers", data.tiers);
  Strings(json, "notes", data.notes);
  json.Key("device_peaks");
  json.BeginArray();
  for (const int64_t peak : data.device_peaks) json.Number(peak);
  json.EndArray();
  json.Key("places");
  json.BeginArray();
  for (const ProfilePlace& place : data.places) {
    json.BeginArray();
    json.Number(place.name);
    json.Number(place.device);
    json.Number(place.bytes);
    json.EndArray();
  }
  json.EndArray();
  json.Member("steps", data.steps.size());
  json.Member("arrays", data.arrays.size());
  json.Key("cycle_kinds");
  json.BeginArray();
  for (const ProfileCycleKind& kind : data.cycle_kinds) {
    json.BeginArray();
    for (const int64_t number :
         {int64_t{kind.place}, int64_t{kind.owner}, static_cast<int64_t>(kind.requests.size()),
          kind.duration, kind.bound, kind.peak, kind.requested, int64_t{kind.misses},
          int64_t{kind.outside}, int64_t{kind.leaked}}) {
      json.Number(number);
    }
    json.EndArray();
  }
  json.EndArray();
  json.Member("cycles", data.cycles.size());
  json.EndObject();

  Columns columns;
  int64_t before = 0;
  for (const ProfileStep& step : data.steps) {
    columns.Put(static_cast<uint64_t>(step.time - before));
    before = step.time;
    columns.PutSigned(step.bytes);
    columns.Put(step.device);
    columns.Put(step.owner);
    columns.Put(2 * uint64_t{step.kind} + (step.at_start ? 1 : 0));
  }
  before = 0;
  for (const ProfileArray& array : data.arrays) {
    columns.PutSigned(array.born - before);
    before = array.born;
    columns.Put(array.died == kAliveAtEnd ? 0 : static_cast<uint64_t>(array.died - array.born) + 1);
    columns.Put(static_cast<uint64_t>(array.bytes));
    columns.Put(static_cast<uint64_t>(array.offset + 1));
    columns.Put(array.name);
    columns.Put(array.site);
    columns.Put(array.owner);
    columns.Put(array.place);
    columns.Put(array.kind);
    columns.Put(array.flags);
  }
  for (const ProfileCycleKind& kind : data.cycle_kinds) {
    before = 0;
    for (size_t i = 0; i < kind.requests.size(); ++i) {
      const ProfileArray& request = kind.requests[i];
      columns.PutSigned(request.born - before);
      before = request.born;
      columns.Put(static_cast<uint64_t>(request.died - request.born));
      columns.PutSigned(int64_t{kind.released_after[i]} - static_cast<int64_t>(i));
      columns.Put(static_cast<uint64_t>(request.bytes));
      columns.Put(static_cast<uint64_t>(request.taken - request.bytes));
      columns.Put(static_cast<uint64_t>(request.offset + 1));
      columns.Put(request.name);
      columns.Put(request.site);
      columns.Put(request.owner);
      columns.Put(request.flags);
    }
  }
  before = 0;
  int64_t generation = 0;
  for (const ProfileCycles& cycles : data.cycles) {
    columns.Put(cycles.kind);
    columns.Put(cycles.count);
    columns.PutSigned(static_cast<int64_t>(cycles.first_generation) - generation);
    generation = static_cast<int64_t>(cycles.first_generation);
    columns.PutSigned(cycles.begin - before);
    before = cycles.begin;
    columns.Put(static_cast<uint64_t>(cycles.end - cycles.begin));
  }
  return {std::move(json).Take(), std::move(columns).Take()};
}

}  // namespace tidepool::internal
