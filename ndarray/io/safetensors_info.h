// What a safetensors file says about its tensors. Values; nothing here reads a file.
#ifndef TIDEPOOL_NDARRAY_IO_SAFETENSORS_INFO_H_
#define TIDEPOOL_NDARRAY_IO_SAFETENSORS_INFO_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool {

// One tensor of a file.
struct SafetensorInfo {
  std::string name;
  std::string dtype;           // as in the file: "F32", "I64", ...; see SafetensorDtypeBits
  std::vector<int64_t> shape;  // empty for a scalar
  uint64_t begin = 0;          // bytes, from the start of the data (not of the file)
  uint64_t end = 0;            // exclusive

  uint64_t bytes() const { return end - begin; }
};

// How a message shows them: on one line, of a length one can read, whatever a file has there.
std::string ShownName(const SafetensorInfo& tensor);   // in quotes
std::string ShownShape(const SafetensorInfo& tensor);  // "[2,3]"

// The parsed header. `tensors` are in the order of their data, without holes from 0 to data_bytes.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorInfo> tensors;
  uint64_t data_bytes = 0;
};

// Bits of one element, 0 if the format has no such dtype: BOOL, F4, F6_E2M3, F6_E3M2, U8, I8,
// F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64,
// F64, I64, U64.
int SafetensorDtypeBits(absl::string_view dtype);

// Place of the dtype in the list above, -1 if there is none: the order of the data in a file is by
// descending rank, so that wide elements come first.
int SafetensorDtypeRank(absl::string_view dtype);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_SAFETENSORS_INFO_H_
