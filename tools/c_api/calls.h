// What every function of the C API is made with: exceptions become status codes, arguments are checked.
//
//   tidepool_status tidepool_array_close(tidepool_array array) {
//     return Call(__func__, [&](const char* function) { arrays.Pin(function, array)->Close(); });
//   }
#ifndef TIDEPOOL_TOOLS_C_API_CALLS_H_
#define TIDEPOOL_TOOLS_C_API_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/device.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/tools/c_api/tidepool.h"

namespace tidepool::c_api {

// Runs `body(function)`; what it throws becomes the status and this thread's message.
tidepool_status Call(const char* function, absl::FunctionRef<void(const char*)> body) noexcept;

// Throws kInvalidArgument "<function>: <name> is null" unless there is one.
void CheckGiven(const char* function, const char* name, const void* pointer);
[[noreturn]] void ThrowBadStructSize(const char* function, size_t found, size_t least);
// The same, and what a function would give is nothing until it succeeds.
template <typename T>
void Clear(const char* function, const char* name, T** result) {
  CheckGiven(function, name, result);
  *result = nullptr;
}

// Of structs that begin with their size as the caller knows it: those of callers that were compiled with an older header are
// smaller, but not than `first_bytes`, those of the first release. Those of callers with a later header are larger: members that
// are not known here are 0 for them. Who forgot to set the size has any number there, which no struct of ours will ever have.
inline constexpr size_t kFirstArrayInfoBytes = 208, kFirstManagerInfoBytes = 40;
inline constexpr size_t kMostInfoBytes = 4096;
template <typename Info>
void CheckInfo(const char* function, const Info* info, size_t first_bytes) {
  CheckGiven(function, "info", info);
  if (info->struct_size < first_bytes || info->struct_size > kMostInfoBytes)
    ThrowBadStructSize(function, info->struct_size, first_bytes);
}
template <typename Info>
void GiveInfo(Info found, Info* info) {
  found.struct_size = info->struct_size;
  const size_t known = std::min(info->struct_size, sizeof(Info));
  std::memset(reinterpret_cast<char*>(info) + known, 0, info->struct_size - known);
  std::memcpy(info, &found, known);
}

// A copy that tidepool_text_free() frees. Throws std::bad_alloc.
char* NewText(absl::string_view text);

Shape ShapeOf(const char* function, int32_t rank, const int64_t* dims);
DType DTypeOfCode(const char* function, int32_t dtype);
// Null: `otherwise`.
Device DeviceOfText(const char* device, Device otherwise = Host());
// Throws kInvalidArgument unless bytes are what those elements take.
void CheckBytes(const char* function, const char* name, size_t bytes, const Shape& shape,
                DType dtype);

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_CALLS_H_
