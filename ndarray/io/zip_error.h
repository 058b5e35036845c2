// What libzip says is wrong, as errors of ours.
#ifndef TIDEPOOL_NDARRAY_IO_ZIP_ERROR_H_
#define TIDEPOOL_NDARRAY_IO_ZIP_ERROR_H_

#include <zip.h>

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::internal {

struct DiscardZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

// What names of arrays end with in an archive.
inline constexpr absl::string_view kNpySuffix = ".npy";

// "<name>: <what>: <what libzip says>", of a code that fits.
[[noreturn]] void ThrowZip(const std::string& name, const char* what, zip_error_t* error);

// A name in a message: one line, of a length one can read.
std::string ShownEntry(const std::string& name);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_NDARRAY_IO_ZIP_ERROR_H_
