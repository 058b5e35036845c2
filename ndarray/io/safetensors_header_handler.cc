#include "tidepool/ndarray/io/safetensors_header_handler.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

constexpr char kMetadataKey[] = "__metadata__";

std::string Quoted(const std::string& text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return absl::StrCat("\"", OneLine(text), "\"");
  return absl::StrCat("\"", OneLine(text.substr(0, kShown)), "\"... (", text.size(), " bytes)");
}

}  // namespace

std::string SafetensorsHeaderHandler::Where() const {
  switch (place_) {
    case Place::kStart:
    case Place::kEnd:
    case Place::kIgnored:
      return "header";
    case Place::kTop:
      return field_ == Field::kMetadata ? kMetadataKey
                                        : absl::StrCat("tensor ", Quoted(tensor_.name));
    case Place::kMetadata:
      return absl::StrCat(kMetadataKey, ": key ", Quoted(metadata_key_));
    case Place::kTensor:
    case Place::kShape:
    case Place::kOffsets:
      break;
  }
  const char* field = field_ == Field::kDtype     ? ": dtype"
                      : field_ == Field::kShape   ? ": shape"
                      : field_ == Field::kOffsets ? ": data_offsets"
                                                  : "";
  return absl::StrCat("tensor ", Quoted(tensor_.name), field);
}

std::string SafetensorsHeaderHandler::Expected() const {
  switch (place_) {
    case Place::kStart:
      return "an object";
    case Place::kTop:
      return field_ == Field::kMetadata ? "an object of strings"
                                        : "an object with dtype, shape and data_offsets";
    case Place::kMetadata:
      return "a string";
    case Place::kTensor:
      return field_ == Field::kDtype   ? "a string"
             : field_ == Field::kShape ? "an array of whole numbers"
                                       : "an array of two whole numbers";
    case Place::kShape:
      return "whole numbers from 0 to 2^63-1";
    case Place::kOffsets:
      return "two whole numbers, begin and end";
    case Place::kIgnored:
    case Place::kEnd:
      break;
  }
  return "the end of the header";
}

void SafetensorsHeaderHandler::Fail(const std::string& found, const std::string& expected) const {
  ThrowDataLoss(absl::StrCat(file_, ": ", Where(), ": found ", found, ", expected ", expected));
}

bool SafetensorsHeaderHandler::Unexpected(const std::string& found) {
  if (place_ == Place::kIgnored) return true;
  if (place_ == Place::kTensor && field_ == Field::kIgnored) return true;
  Fail(found, Expected());
}

bool SafetensorsHeaderHandler::null() {
  // The reference implementation takes "__metadata__": null for none.
  if (place_ == Place::kTop && field_ == Field::kMetadata) return true;
  return Unexpected("null");
}

bool SafetensorsHeaderHandler::boolean(bool value) { return Unexpected(value ? "true" : "false"); }

bool SafetensorsHeaderHandler::number_integer(number_integer_t value) {
  // Called for numbers with a minus sign only.
  return Unexpected(value == 0 ? "-0" : absl::StrCat(value));
}

bool SafetensorsHeaderHandler::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::kShape && value <= uint64_t{std::numeric_limits<int64_t>::max()}) {
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  if (place_ == Place::kOffsets && offsets_ < 2) {
    (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    return true;
  }
  if (place_ == Place::kOffsets) Fail("a third number", Expected());
  return Unexpected(absl::StrCat(value));
}

bool SafetensorsHeaderHandler::number_float(number_float_t, const string_t& text) {
  return Unexpected(Quoted(text));
}

bool SafetensorsHeaderHandler::string(string_t& value) {
  if (place_ == Place::kMetadata) {
    header_.metadata.emplace(metadata_key_, std::move(value));
    return true;
  }
  if (place_ == Place::kTensor && field_ == Field::kDtype) {
    if (SafetensorDtypeBits(value) == 0)
      Fail(Quoted(value), "BOOL, U8, I8, ..., F32, F64, I64 or U64");
    tensor_.dtype = std::move(value);
    return true;
  }
  return Unexpected(Quoted(value));
}

bool SafetensorsHeaderHandler::binary(binary_t&) { return Unexpected("binary data"); }

bool SafetensorsHeaderHandler::start_object(size_t) {
  switch (place_) {
    case Place::kStart:
      place_ = Place::kTop;
      return true;
    case Place::kTop:
      place_ = field_ == Field::kMetadata ? Place::kMetadata : Place::kTensor;
      return true;
    default:
      Unexpected("an object");
      place_ = Place::kIgnored;
      ++ignored_depth_;
      return true;
  }
}

bool SafetensorsHeaderHandler::end_object() {
  switch (place_) {
    case Place::kTop:
      place_ = Place::kEnd;
      return true;
    case Place::kMetadata:
      place_ = Place::kTop;
      return true;
    case Place::kTensor:
      field_ = Field::kNone;
      for (const auto& [field, name] :
           {std::pair(Field::kDtype, "dtype"), std::pair(Field::kShape, "shape"),
            std::pair(Field::kOffsets, "data_offsets")}) {
        if (!seen_.contains(field))
          Fail(absl::StrCat("no field ", name), "dtype, shape and data_offsets");
      }
      header_.tensors.push_back(std::move(tensor_));
      tensor_ = {};
      place_ = Place::kTop;
      return true;
    default:
      if (--ignored_depth_ == 0) place_ = Place::kTensor;
      return true;
  }
}

bool SafetensorsHeaderHandler::start_array(size_t) {
  if (place_ == Place::kTensor && field_ == Field::kShape) {
    place_ = Place::kShape;
    return true;
  }
  if (place_ == Place::kTensor && field_ == Field::kOffsets) {
    place_ = Place::kOffsets;
    offsets_ = 0;
    return true;
  }
  Unexpected("an array");
  place_ = Place::kIgnored;
  ++ignored_depth_;
  return true;
}

bool SafetensorsHeaderHandler::end_array() {
  if (place_ == Place::kOffsets && offsets_ < 2)
    Fail(absl::StrCat(offsets_, " numbers"), Expected());
  if (place_ != Place::kIgnored || --ignored_depth_ == 0) place_ = Place::kTensor;
  return true;
}

bool SafetensorsHeaderHandler::key(string_t& key) {
  if (place_ == Place::kIgnored) return true;
  if (place_ == Place::kMetadata) {
    metadata_key_ = std::move(key);
    if (header_.metadata.contains(metadata_key_)) Fail("a duplicate", "each key once");
    return true;
  }
  if (place_ == Place::kTop) {
    field_ = key == kMetadataKey ? Field::kMetadata : Field::kNone;
    tensor_ = {};
    tensor_.name = key;
    seen_.clear();
    if (!names_.insert(std::move(key)).second) Fail("a duplicate", "each name once");
    return true;
  }
  field_ = key == "dtype"          ? Field::kDtype
           : key == "shape"        ? Field::kShape
           : key == "data_offsets" ? Field::kOffsets
                                   : Field::kIgnored;
  if (field_ != Field::kIgnored && !seen_.insert(field_).second)
    Fail("a duplicate", "each field once");
  return true;
}

bool SafetensorsHeaderHandler::parse_error(size_t position, const std::string& token,
                                           const nlohmann::json::exception&) {
  // Positions count from 1, in the header, which 8 bytes precede.
  constexpr uint64_t kHeaderStart = 8;
  constexpr size_t kShown = 40;
  const size_t from = token.size() > kShown ? token.size() - kShown : 0;
  ThrowDataLoss(absl::StrCat(file_, ": byte ", kHeaderStart + (position > 0 ? position - 1 : 0),
                             ": header: found \"", absl::CHexEscape(token.substr(from)),
                             "\", expected valid JSON in UTF-8"));
}

}  // namespace tidepool
