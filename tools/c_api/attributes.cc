#include "tidepool/tools/c_api/attributes.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::c_api {

using Json = nlohmann::json;

struct Attributes::Members {
  Json object = Json::object();
};

namespace {

const Json& JsonOf(const void* value) { return *static_cast<const Json*>(value); }

std::string Quoted(absl::string_view text) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  return quoted;
}

// As JSON: 1e-05, 0.5, "inf".
std::string NumberText(double value) {
  if (std::isfinite(value)) return Json(value).dump();
  return std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
}

bool ReadInt(const Json& value, int64_t* number) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
  *number = value.get<int64_t>();
  return true;
}

bool ReadNumber(const Json& value, double* number) {
  if (value.is_number()) {
    *number = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "inf") *number = std::numeric_limits<double>::infinity();
  if (text == "-inf") *number = -std::numeric_limits<double>::infinity();
  if (text == "nan") *number = std::numeric_limits<double>::quiet_NaN();
  return text == "inf" || text == "-inf" || text == "nan";
}

template <typename T, typename Read>
bool ReadList(const Json& value, std::vector<T>* list, const Read& read) {
  T number;
  if (read(value, &number)) {
    *list = {number};
    return true;
  }
  if (!value.is_array()) return false;
  for (const Json& element : value) {
    if (!read(element, &number)) return false;
    list->push_back(number);
  }
  return true;
}

// What was found where a whole number is expected may be one that is too large.
const char* WholeNumberFor(const Json& value) {
  return value.is_number() ? "a whole number of at most 64 bits, with its sign" : "a whole number";
}

}  // namespace

std::string Shown(absl::string_view text) {
  constexpr size_t kMostBytes = 200;
  size_t end = std::min(text.size(), kMostBytes);
  // Not within a character of several bytes.
  while (end < text.size() && end > kMostBytes - 4 && (text[end] & 0xC0) == 0x80) --end;
  const std::string quoted = Quoted(text.substr(0, end));
  return absl::StrCat(absl::string_view(quoted).substr(1, quoted.size() - 2),
                      end < text.size() ? "..." : "");
}

Attributes::Attributes(std::string where, const char* json)
    : where_(std::move(where)), members_(std::make_unique<Members>()) {
  if (json == nullptr || *json == 0) return;
  std::set<std::string> names;
  const auto check_name = [&](int depth, Json::parse_event_t event, Json& name) {
    if (event != Json::parse_event_t::key || depth != 1) return true;
    const auto& text = name.get_ref<const std::string&>();
    if (!names.insert(text).second) {
      ThrowInvalidArgument(
          absl::StrCat(where_, ": attribute [", Shown(text), "] is there twice, expected once"));
    }
    return true;
  };
  Json parsed;
  const char* expected = "a JSON object, as in {\"axis\": 1}";
  try {
    parsed = Json::parse(json, check_name);
  } catch (const Json::out_of_range&) {
    expected = "numbers that float64 has";
  } catch (const Json::exception&) {
    // As Python's json.dumps writes them, which is no JSON.
    const absl::string_view text = json;
    if (absl::StrContains(text, "NaN") || absl::StrContains(text, "Infinity"))
      expected = "a JSON object, in which these are \"nan\", \"inf\" and \"-inf\", with quotes";
  }
  if (!parsed.is_object()) {
    ThrowInvalidArgument(
        absl::StrCat(where_, ": attributes are \"", Shown(json), "\", expected ", expected));
  }
  members_->object = std::move(parsed);
}

Attributes::Attributes(JsonWriter* description) : description_(description) {}
Attributes::~Attributes() = default;

bool Attributes::Has(const char* name) const {
  return members_ != nullptr && members_->object.contains(name);
}

bool Attributes::Describes(const char* name, const char* type,
                           const std::optional<std::string>& otherwise) {
  asked_.push_back(name);
  if (description_ == nullptr) return false;
  description_->BeginObject();
  description_->Member("name", name);
  description_->Member("type", type);
  if (otherwise.has_value()) {
    description_->Key("default");
    description_->Literal(*otherwise);
  }
  description_->EndObject();
  return true;
}

const void* Attributes::Find(const char* name, bool may_be_absent) {
  const auto found = members_->object.find(name);
  if (found != members_->object.end()) return &*found;
  if (!may_be_absent)
    ThrowInvalidArgument(absl::StrCat(where_, ": attribute [", name, "] is missing"));
  return nullptr;
}

void Attributes::ThrowNot(const char* name, const std::string& expected) const {
  ThrowInvalidArgument(absl::StrCat(
      where_, ": attribute [", name, "] is ",
      members_->object[name].dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200),
      ", expected ", expected));
}

void Attributes::CheckAllRead() const {
  if (members_ == nullptr) return;
  for (const auto& [name, value] : members_->object.items()) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    ThrowInvalidArgument(absl::StrCat(
        where_, ": no attribute [", Shown(name), "]; ",
        asked_.empty() ? "there are none"
                       : absl::StrCat("there are [", absl::StrJoin(asked_, "], ["), "]")));
  }
}

bool Attributes::Flag(const char* name, bool otherwise) {
  if (Describes(name, "bool", otherwise ? "true" : "false")) return otherwise;
  const void* const value = Find(name, true);
  if (value == nullptr) return otherwise;
  if (!JsonOf(value).is_boolean()) ThrowNot(name, "true or false");
  return JsonOf(value).get<bool>();
}

int64_t Attributes::Int(const char* name, std::optional<int64_t> otherwise) {
  if (Describes(name, "int", otherwise ? std::optional(absl::StrCat(*otherwise)) : std::nullopt))
    return otherwise.value_or(0);
  const void* const value = Find(name, otherwise.has_value());
  if (value == nullptr) return *otherwise;
  int64_t number;
  if (!ReadInt(JsonOf(value), &number)) ThrowNot(name, WholeNumberFor(JsonOf(value)));
  return number;
}

int Attributes::Axis(const char* name, std::optional<int> otherwise) {
  const int64_t axis = Int(name, otherwise);
  if (axis < INT_MIN || axis > INT_MAX) ThrowNot(name, "an axis");
  return static_cast<int>(axis);
}

uint64_t Attributes::Unsigned(const char* name, std::optional<uint64_t> otherwise) {
  if (Describes(name, "unsigned",
                otherwise ? std::optional(absl::StrCat(*otherwise)) : std::nullopt))
    return otherwise.value_or(0);
  const void* const value = Find(name, otherwise.has_value());
  if (value == nullptr) return *otherwise;
  if (!JsonOf(value).is_number_unsigned()) ThrowNot(name, "a whole number from 0");
  return JsonOf(value).get<uint64_t>();
}

size_t Attributes::Size(const char* name, size_t otherwise) {
  const uint64_t size = Unsigned(name, otherwise);
  if (size > INT64_MAX) ThrowNot(name, absl::StrCat("at most ", INT64_MAX));
  return size;
}

double Attributes::Number(const char* name, std::optional<double> otherwise) {
  if (Describes(name, "number", otherwise ? std::optional(NumberText(*otherwise)) : std::nullopt))
    return otherwise.value_or(0);
  const void* const value = Find(name, otherwise.has_value());
  if (value == nullptr) return *otherwise;
  double number;
  if (!ReadNumber(JsonOf(value), &number)) ThrowNot(name, "a number");
  return number;
}

std::string Attributes::Text(const char* name, std::optional<std::string> otherwise) {
  if (Describes(name, "text", otherwise ? std::optional(Quoted(*otherwise)) : std::nullopt))
    return otherwise.value_or("");
  const void* const value = Find(name, otherwise.has_value());
  if (value == nullptr) return *otherwise;
  if (!JsonOf(value).is_string()) ThrowNot(name, "text");
  return JsonOf(value).get<std::string>();
}

DType Attributes::Type(const char* name, std::optional<DType> otherwise) {
  std::vector<const char*> names;
  for (int i = 0; i < kDTypes; ++i) names.push_back(DTypeName(static_cast<DType>(i)));
  if (Describes(name, "dtype",
                otherwise ? std::optional(Quoted(DTypeName(*otherwise))) : std::nullopt)) {
    return otherwise.value_or(DType::kFloat32);
  }
  const void* const value = Find(name, otherwise.has_value());
  if (value == nullptr) return *otherwise;
  for (int i = 0; i < kDTypes; ++i) {
    if (JsonOf(value) == names[i]) return static_cast<DType>(i);
  }
  ThrowNot(name, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
}

std::vector<int64_t> Attributes::Ints(const char* name, Absent absent) {
  const bool may_be_absent = absent == Absent::kIsEmpty;
  if (Describes(name, "ints", may_be_absent ? std::optional<std::string>("[]") : std::nullopt))
    return {};
  std::vector<int64_t> numbers;
  const void* const value = Find(name, may_be_absent);
  if (value != nullptr && !ReadList(JsonOf(value), &numbers, ReadInt))
    ThrowNot(name, "whole numbers");
  return numbers;
}

std::vector<int64_t> Attributes::IntsPerAxis(const char* name, size_t count, int64_t otherwise) {
  if (Describes(name, "ints", absl::StrCat(otherwise)))
    return std::vector<int64_t>(count, otherwise);
  const void* const value = Find(name, true);
  if (value == nullptr) return std::vector<int64_t>(count, otherwise);
  std::vector<int64_t> numbers;
  if (!ReadList(JsonOf(value), &numbers, ReadInt) ||
      (numbers.size() != count && numbers.size() != 1)) {
    ThrowNot(name, absl::StrCat("1 or ", count, " whole numbers"));
  }
  numbers.resize(count, numbers[0]);
  return numbers;
}

std::vector<int> Attributes::Axes(const char* name) {
  std::vector<int> axes;
  for (const int64_t axis : Ints(name, Absent::kIsEmpty)) {
    if (axis < INT_MIN || axis > INT_MAX) ThrowNot(name, "axes");
    axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

std::vector<double> Attributes::Numbers(const char* name) {
  if (Describes(name, "numbers", std::nullopt)) return {};
  std::vector<double> numbers;
  if (!ReadList(JsonOf(Find(name, false)), &numbers, ReadNumber)) ThrowNot(name, "numbers");
  return numbers;
}

Shape Attributes::Shape(const char* name) {
  const std::vector<int64_t> dims = Ints(name, Absent::kIsError);
  return tidepool::Shape(absl::Span<const int64_t>(dims));
}

int Attributes::Choice(const char* name, absl::Span<const char* const> names, int otherwise) {
  if (Describes(name, absl::StrJoin(names, "|").c_str(), Quoted(names[otherwise])))
    return otherwise;
  const void* const value = Find(name, true);
  if (value == nullptr) return otherwise;
  for (size_t i = 0; i < names.size(); ++i) {
    if (JsonOf(value) == names[i]) return static_cast<int>(i);
  }
  ThrowNot(name, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
}

}  // namespace tidepool::c_api
