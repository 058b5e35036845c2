// Messages of the library name C++; those of the C API name what its callers have.
#ifndef TIDEPOOL_TOOLS_C_API_ERROR_TERMS_H_
#define TIDEPOOL_TOOLS_C_API_ERROR_TERMS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::c_api {

// "Lend: owner [a] is closed" is "tidepool_manager_lend: owner [a] is closed" where `function` is that, and "Dup() makes it
// dense" is "tidepool_array_copy makes it dense". The function is in front of every message. What stands in brackets or quotes is
// the caller's own and stays as it is.
std::string InTermsOfC(absl::string_view function, absl::string_view message);

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_ERROR_TERMS_H_
