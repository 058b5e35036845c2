#include "tidepool/tools/c_api/calls.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/tools/c_api/error_terms.h"
#include "tidepool/tools/c_api/handle_table.h"

namespace tidepool::c_api {
namespace {

struct LastError {
  const char* message = "";  // of the strings, or static
  const char* report = "";
  std::string message_text, report_text;
};
// Dies with its thread, at whose end functions may still be called: then there is no message.
struct LastErrorOfThread {
  LastError* error = nullptr;
  ~LastErrorOfThread() { delete std::exchange(error, nullptr); }
};
thread_local LastErrorOfThread last_error;

// Callers log messages: what a stranger gave, a name or a path, makes none of megabytes. Cut between characters.
std::string Bounded(absl::string_view message) {
  constexpr size_t kMostBytes = 4096;
  if (message.size() <= kMostBytes) return std::string(message);
  size_t end = kMostBytes;
  while (end > kMostBytes - 4 && (message[end] & 0xC0) == 0x80) --end;
  return absl::StrCat(message.substr(0, end), "... (", message.size(), " bytes)");
}

tidepool_status Failed(const char* function, absl::StatusCode code, const char* message,
                       const std::string* report = nullptr) noexcept {
  try {
    if (last_error.error == nullptr) last_error.error = new LastError();
    LastError& last = *last_error.error;
    last.message = last.report = "";
    last.message_text = Bounded(InTermsOfC(function, message));
    last.message = last.message_text.c_str();
    if (report != nullptr) {
      last.report_text = *report;
      last.report = last.report_text.c_str();
    }
  } catch (...) {
    if (last_error.error != nullptr) last_error.error->message = "no memory for an error's message";
  }
  return static_cast<tidepool_status>(code);
}

const char* NameOfKind(HandleKind kind) {
  switch (kind) {
    case HandleKind::kArray:
      return "array";
    case HandleKind::kOperator:
      return "operator";
    case HandleKind::kManager:
      return "manager";
    case HandleKind::kWorkspace:
      return "workspace";
    case HandleKind::kModel:
      return "model";
    case HandleKind::kPredictor:
      return "predictor";
  }
  return nullptr;
}

}  // namespace

tidepool_status Call(const char* function, absl::FunctionRef<void(const char*)> body) noexcept {
  try {
    body(function);
    return TIDEPOOL_OK;
  } catch (const OutOfMemoryError& error) {
    return Failed(function, error.code(), error.what(), &error.report());
  } catch (const Error& error) {
    return Failed(function, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return Failed(function, absl::StatusCode::kResourceExhausted, "no memory");
  } catch (const std::exception& error) {
    return Failed(function, absl::StatusCode::kInternal, error.what());
  } catch (...) {
    return Failed(function, absl::StatusCode::kInternal, "an exception of an unknown type");
  }
}

void ThrowNoHandle(const char* function, HandleKind expected, const void* handle) {
  const std::string name = NameOfKind(expected);
  if (handle == nullptr) ThrowInvalidArgument(absl::StrCat(function, ": the ", name, " is NULL"));
  const auto bits = reinterpret_cast<uint64_t>(handle);
  const char* const kind =
      (bits & 1) != 0 ? NameOfKind(static_cast<HandleKind>((bits & 31) >> 1)) : nullptr;
  const std::string found = kind == nullptr ? "no handle of this library"
                            : kind == name  ? "a handle that was released"
                                            : absl::StrCat("a handle of the kind ", kind);
  ThrowInvalidArgument(absl::StrCat(function, ": ", found, ", expected one of the kind ", name));
}

void CheckGiven(const char* function, const char* name, const void* pointer) {
  if (pointer == nullptr) ThrowInvalidArgument(absl::StrCat(function, ": ", name, " is NULL"));
}

void ThrowBadStructSize(const char* function, size_t found, size_t least) {
  ThrowInvalidArgument(absl::StrCat(function, ": info->struct_size is ", found, ", expected ",
                                    least, " to ", kMostInfoBytes, ", the size of the struct"));
}

char* NewText(absl::string_view text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = 0;
  return copy;
}

Shape ShapeOf(const char* function, int32_t rank, const int64_t* dims) {
  if (rank < 0 || rank > kMaxRank) {
    ThrowInvalidArgument(absl::StrCat(function, ": rank is ", rank, ", expected 0 to ", kMaxRank));
  }
  if (rank > 0) CheckGiven(function, "dims", dims);
  return Shape(absl::Span<const int64_t>(dims, rank));
}

DType DTypeOfCode(const char* function, int32_t dtype) {
  if (dtype < 0 || dtype >= kDTypes) {
    ThrowInvalidArgument(
        absl::StrCat(function, ": dtype is ", dtype, ", expected 0 to ", kDTypes - 1));
  }
  return static_cast<DType>(dtype);
}

Device DeviceOfText(const char* device, Device otherwise) {
  return device != nullptr ? DeviceNamed(device) : otherwise;
}

void CheckBytes(const char* function, const char* name, size_t bytes, const Shape& shape,
                DType dtype) {
  const size_t expected = static_cast<size_t>(shape.NumElements()) * DTypeBytes(dtype);
  if (bytes != expected) {
    ThrowInvalidArgument(absl::StrCat(function, ": ", name, " are ", bytes, " bytes, expected ",
                                      expected, ", as ", DTypeName(dtype), " ", shape.ToString(),
                                      " takes"));
  }
}

}  // namespace tidepool::c_api

using tidepool::c_api::last_error;

const char* tidepool_error_message(void) {
  return last_error.error != nullptr ? last_error.error->message : "";
}

const char* tidepool_error_report(void) {
  return last_error.error != nullptr ? last_error.error->report : "";
}

void tidepool_text_free(char* text) { std::free(text); }
