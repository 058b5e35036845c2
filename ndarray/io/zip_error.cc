#include "tidepool/ndarray/io/zip_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool::internal {

void ThrowZip(const std::string& name, const char* what, zip_error_t* error) {
  const std::string message = absl::StrCat(name, ": ", what, ": ", zip_error_strerror(error));
  switch (zip_error_code_zip(error)) {
    case ZIP_ER_NOZIP:
    case ZIP_ER_INCONS:
    case ZIP_ER_CRC:
    case ZIP_ER_EOF:
    case ZIP_ER_ZLIB:
    case ZIP_ER_COMPRESSED_DATA:
    case ZIP_ER_MULTIDISK:
      ThrowDataLoss(message);
    case ZIP_ER_COMPNOTSUPP:
    case ZIP_ER_ENCRNOTSUPP:
    case ZIP_ER_NOPASSWD:
      ThrowUnimplemented(message);
    case ZIP_ER_SEEK:
      // Of an archive that says so: a source that cannot seek says why itself.
      if (zip_error_code_system(error) == EFBIG) ThrowDataLoss(message);
      [[fallthrough]];
    default:
      if (zip_error_system_type(error) == ZIP_ET_SYS && zip_error_code_system(error) != 0) {
        ThrowErrno(zip_error_code_system(error), absl::StrCat(name, ": ", what));
      }
      ThrowDataLoss(message);
  }
}

std::string ShownEntry(const std::string& name) {
  constexpr size_t kMost = 200;
  return absl::StrCat("\"", OneLine(name.substr(0, kMost)), name.size() > kMost ? "\"..." : "\"");
}

}  // namespace tidepool::internal
