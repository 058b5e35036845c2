#include "tidepool/ndarray/io/safetensors_format.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/io/safetensors_header_handler.h"

namespace tidepool {
namespace {

constexpr char kMetadataKey[] = "__metadata__";

std::string Where(const std::string& file, const SafetensorInfo& tensor, const char* field) {
  return absl::StrCat(file, ": tensor ", ShownName(tensor), ": ", field, ": ");
}

// Bytes of shape x dtype. On failure returns false and says in `found` what is wrong.
bool ByteCount(const SafetensorInfo& tensor, uint64_t& bytes, std::string& found) {
  uint64_t bits = static_cast<uint64_t>(SafetensorDtypeBits(tensor.dtype));
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  for (int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      found = absl::StrCat(ShownShape(tensor), " with a negative dimension");
      return false;
    }
    if (!empty && bits > std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(dimension)) {
      found = absl::StrCat(ShownShape(tensor), " of ", tensor.dtype, ", whose size overflows");
      return false;
    }
    bits = empty ? 0 : bits * static_cast<uint64_t>(dimension);
  }
  if (bits % 8 != 0) {
    found = absl::StrCat(ShownShape(tensor), " of ", tensor.dtype, ", which is ", bits, " bits");
    return false;
  }
  bytes = bits / 8;
  return true;
}

constexpr char kExpectedShape[] =
    "dimensions from 0 whose product is a whole number of bytes below 2^61";

void CheckRange(const std::string& file, const SafetensorInfo& tensor, uint64_t expected_begin) {
  const std::string range = absl::StrCat("[", tensor.begin, ",", tensor.end, "]");
  if (tensor.begin != expected_begin) {
    ThrowDataLoss(absl::StrCat(Where(file, tensor, "data_offsets"), "found ", range, ", ",
                               tensor.begin < expected_begin ? "an overlap" : "a hole",
                               ", expected begin ", expected_begin));
  }
  if (tensor.end < tensor.begin) {
    ThrowDataLoss(absl::StrCat(Where(file, tensor, "data_offsets"), "found ", range,
                               ", expected end not before begin"));
  }
  uint64_t bytes = 0;
  std::string found;
  if (!ByteCount(tensor, bytes, found)) {
    ThrowDataLoss(
        absl::StrCat(Where(file, tensor, "shape"), "found ", found, ", expected ", kExpectedShape));
  }
  if (bytes != tensor.bytes()) {
    ThrowDataLoss(absl::StrCat(Where(file, tensor, "data_offsets"), "found ", range, " of ",
                               tensor.bytes(), " bytes, expected ", bytes, " bytes for ",
                               ShownShape(tensor), " of ", tensor.dtype));
  }
}

}  // namespace

uint64_t ParseSafetensorsHeaderLength(const unsigned char* prefix, uint64_t file_bytes,
                                      const std::string& file) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (length > kMaxSafetensorsHeaderBytes) {
    ThrowDataLoss(absl::StrCat(file, ": byte 0: header length: found ", length,
                               ", expected at most ", kMaxSafetensorsHeaderBytes,
                               " (is this a safetensors file?)"));
  }
  if (length > file_bytes - kSafetensorsLengthBytes) {
    ThrowDataLoss(absl::StrCat(file, ": byte 0: header length: found ", length,
                               ", expected at most ", file_bytes - kSafetensorsLengthBytes,
                               ", the rest of the file"));
  }
  return length;
}

SafetensorsHeader ParseSafetensorsHeader(absl::string_view json, uint64_t data_bytes,
                                         const std::string& file) {
  if (json.empty() || json[0] != '{') {
    ThrowDataLoss(absl::StrCat(
        file, ": byte 8: header: found ",
        json.empty() ? "nothing" : absl::StrCat("byte ", static_cast<unsigned char>(json[0])),
        ", expected '{'"));
  }
  // The JSON library takes a zero byte for the end of its input.
  if (const size_t zero = json.find('\0'); zero != absl::string_view::npos) {
    ThrowDataLoss(absl::StrCat(file, ": byte ", kSafetensorsLengthBytes + zero,
                               ": header: found a zero byte, expected JSON padded with spaces"));
  }
  SafetensorsHeader header;
  SafetensorsHeaderHandler handler(file, header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);

  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorInfo& a, const SafetensorInfo& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  for (const SafetensorInfo& tensor : header.tensors) {
    CheckRange(file, tensor, header.data_bytes);
    header.data_bytes = tensor.end;
  }
  if (header.data_bytes != data_bytes) {
    ThrowDataLoss(absl::StrCat(file, ": byte ", kSafetensorsLengthBytes + json.size(),
                               ": data: found ", data_bytes, " bytes, expected ", header.data_bytes,
                               ", the end of the last tensor"));
  }
  return header;
}

SafetensorsHeader LayOutSafetensors(std::map<std::string, std::string> metadata,
                                    std::vector<SafetensorInfo> tensors, const std::string& file) {
  for (const SafetensorInfo& tensor : tensors) {
    if (SafetensorDtypeRank(tensor.dtype) < 0) {
      ThrowInvalidArgument(absl::StrCat(Where(file, tensor, "dtype"), "found \"",
                                        OneLine(tensor.dtype),
                                        "\", expected BOOL, U8, I8, ..., F32, F64, I64 or U64"));
    }
    if (tensor.name == kMetadataKey) {
      ThrowInvalidArgument(absl::StrCat(file, ": tensor name: found ", kMetadataKey,
                                        ", which is reserved, expected any other"));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorInfo& a, const SafetensorInfo& b) {
    const int a_rank = SafetensorDtypeRank(a.dtype), b_rank = SafetensorDtypeRank(b.dtype);
    return a_rank != b_rank ? a_rank > b_rank : a.name < b.name;
  });
  std::vector<absl::string_view> names;
  for (const SafetensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    ThrowInvalidArgument(absl::StrCat(file, ": tensor \"", OneLine(std::string(*twice)),
                                      "\": found twice, expected each name once"));
  }
  SafetensorsHeader header;
  header.metadata = std::move(metadata);
  for (SafetensorInfo& tensor : tensors) {
    uint64_t bytes = 0;
    std::string found;
    const bool fits = ByteCount(tensor, bytes, found);
    if (!fits || bytes > std::numeric_limits<int64_t>::max() - header.data_bytes) {
      if (fits) found = absl::StrCat(ShownShape(tensor), " after ", header.data_bytes, " bytes");
      ThrowInvalidArgument(absl::StrCat(Where(file, tensor, "shape"), "found ", found,
                                        ", expected ", kExpectedShape));
    }
    tensor.begin = header.data_bytes;
    tensor.end = header.data_bytes += bytes;
  }
  header.tensors = std::move(tensors);
  return header;
}

std::string SerializeSafetensorsHeader(const SafetensorsHeader& header, const std::string& file) {
  // Field by field in the reference's order, so that equal contents give equal files.
  const auto text = [&file](const std::string& value, const char* what) -> const std::string& {
    if (!IsUtf8(value)) {
      ThrowInvalidArgument(
          absl::StrCat(file, ": ", what, ": found \"", OneLine(value), "\", expected UTF-8"));
    }
    return value;
  };
  JsonWriter writer;
  writer.BeginObject();
  if (!header.metadata.empty()) {
    writer.Key(kMetadataKey);
    writer.BeginObject();
    for (const auto& [key, value] : header.metadata) {
      writer.Member(text(key, "metadata key"), text(value, "metadata value"));
    }
    writer.EndObject();
  }
  for (const SafetensorInfo& tensor : header.tensors) {
    writer.Key(text(tensor.name, "tensor name"));
    writer.BeginObject();
    writer.Member("dtype", tensor.dtype);
    writer.Key("shape");
    writer.Literal(absl::StrCat("[", absl::StrJoin(tensor.shape, ","), "]"));
    writer.Key("data_offsets");
    writer.Literal(absl::StrCat("[", tensor.begin, ",", tensor.end, "]"));
    writer.EndObject();
  }
  writer.EndObject();
  std::string json = std::move(writer).Take();
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    ThrowInvalidArgument(absl::StrCat(file, ": header: found ", json.size(), " bytes for ",
                                      header.tensors.size(), " tensors, expected at most ",
                                      kMaxSafetensorsHeaderBytes));
  }
  std::string length(kSafetensorsLengthBytes, '\0');
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(json.size() >> (8 * i));
  return length + json;
}

}  // namespace tidepool
