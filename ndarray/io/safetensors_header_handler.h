// Events of a JSON parser -> the tensors of a safetensors header; internal to safetensors_format.
//
// No document tree is built: a header of the largest allowed size costs no more memory than what it
// declares, and nesting costs none. Implements the event interface of nlohmann::json::sax_parse.
#ifndef TIDEPOOL_NDARRAY_IO_SAFETENSORS_HEADER_HANDLER_H_
#define TIDEPOOL_NDARRAY_IO_SAFETENSORS_HEADER_HANDLER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "tidepool/ndarray/io/safetensors_info.h"

namespace tidepool {

class SafetensorsHeaderHandler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  // Both must outlive the handler.
  SafetensorsHeaderHandler(const std::string& file, SafetensorsHeader& header)
      : file_(file), header_(header) {}

  bool null();
  bool boolean(bool value);
  bool number_integer(number_integer_t value);
  bool number_unsigned(number_unsigned_t value);
  bool number_float(number_float_t value, const string_t& text);
  bool string(string_t& value);
  bool binary(binary_t& value);
  bool start_object(size_t elements);
  bool end_object();
  bool start_array(size_t elements);
  bool end_array();
  bool key(string_t& key);
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error);

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kIgnored, kEnd };
  enum class Field { kNone, kDtype, kShape, kOffsets, kMetadata, kIgnored };

  // A value that is not `expected` here: ignored inside unknown fields, otherwise an error.
  bool Unexpected(const std::string& found);
  [[noreturn]] void Fail(const std::string& found, const std::string& expected) const;
  std::string Where() const;
  std::string Expected() const;

  const std::string& file_;
  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  Field field_ = Field::kNone;
  int ignored_depth_ = 0;  // open brackets of the value of an unknown field
  std::string metadata_key_;
  SafetensorInfo tensor_;  // being read
  int offsets_ = 0;        // of data_offsets, read so far
  std::set<Field> seen_;   // fields of tensor_
  std::set<std::string> names_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_SAFETENSORS_HEADER_HANDLER_H_
