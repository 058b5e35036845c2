// The header of the safetensors format: which tensors a file holds and where.
//
// A file is: 8 bytes, little-endian: length n of the header; n bytes of JSON, starting with '{' and
// padded with spaces; the data. The JSON maps each tensor's name to {"dtype", "shape",
// "data_offsets": [begin, end)} with offsets relative to the data, and "__metadata__" to a map of
// strings. Data is little-endian, row-major and has no holes.
// Source: the format's text and reference implementation, github.com/huggingface/safetensors.
//
// What is refused: what the reference implementation refuses, and also duplicate tensor names and
// metadata keys, white space before '{', and tensors written as JSON arrays, which its text forbids
// and its code lets through. Unknown fields of a tensor are ignored, as there.
//
// Errors: kDataLoss, "<file>: ..." with tensor and field or byte offset, found and expected.
// Threads: values and pure functions.
#ifndef TIDEPOOL_NDARRAY_IO_SAFETENSORS_FORMAT_H_
#define TIDEPOOL_NDARRAY_IO_SAFETENSORS_FORMAT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/io/safetensors_info.h"

namespace tidepool {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr uint64_t kSafetensorsLengthBytes = 8;

// The length in the first 8 bytes of a file, checked against the cap and `file_bytes`.
// `prefix` has 8 bytes.
uint64_t ParseSafetensorsHeaderLength(const unsigned char* prefix, uint64_t file_bytes,
                                      const std::string& file);

// `json` is the whole header, `data_bytes` what follows it in the file.
SafetensorsHeader ParseSafetensorsHeader(absl::string_view json, uint64_t data_bytes,
                                         const std::string& file);

// Orders `tensors` as the reference does (widest dtype first, then by name, so that every tensor is
// aligned to its element when the data is) and gives them their offsets; begin and end are outputs.
// Throws kInvalidArgument for an unknown dtype, a negative dimension, a size that overflows or does
// not end at a byte, a duplicate or reserved name.
SafetensorsHeader LayOutSafetensors(std::map<std::string, std::string> metadata,
                                    std::vector<SafetensorInfo> tensors, const std::string& file);

// Length and JSON, padded so that the data starts at a multiple of 8: all that precedes the data.
// Throws kInvalidArgument if a name or metadata is not UTF-8 or the header exceeds the cap.
std::string SerializeSafetensorsHeader(const SafetensorsHeader& header, const std::string& file);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_SAFETENSORS_FORMAT_H_
