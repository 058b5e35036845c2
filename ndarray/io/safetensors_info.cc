#include "tidepool/ndarray/io/safetensors_info.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace tidepool {
namespace {

struct Dtype {
  absl::string_view name;
  int bits;
};

// In the order of the reference implementation's enumeration, which decides the order of the data.
constexpr Dtype kDtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

}  // namespace

std::string ShownName(const SafetensorInfo& tensor) {
  constexpr size_t kShown = 120;
  const std::string shown =
      absl::Utf8SafeCHexEscape(absl::string_view(tensor.name).substr(0, kShown));
  if (tensor.name.size() <= kShown) return absl::StrCat("\"", shown, "\"");
  return absl::StrCat("\"", shown, "\"... (", tensor.name.size(), " bytes)");
}

std::string ShownShape(const SafetensorInfo& tensor) {
  constexpr size_t kShown = 16;
  const absl::Span<const int64_t> shape = tensor.shape;
  if (shape.size() <= kShown) return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
  return absl::StrCat("[", absl::StrJoin(shape.subspan(0, kShown), ","), ",...] of rank ",
                      shape.size());
}

int SafetensorDtypeRank(absl::string_view dtype) {
  int rank = 0;
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return rank;
    ++rank;
  }
  return -1;
}

int SafetensorDtypeBits(absl::string_view dtype) {
  const int rank = SafetensorDtypeRank(dtype);
  return rank < 0 ? 0 : kDtypes[rank].bits;
}

}  // namespace tidepool
