// Numbers as fields of a CSV file have them.
#ifndef TIDEPOOL_NN_DATA_CSV_VALUES_H_
#define TIDEPOOL_NN_DATA_CSV_VALUES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tidepool {

// False for what is none. Blanks around it do not count.
// As one of double; an infinity for one that is too large.
bool ParseCsvNumber(absl::string_view text, double& value);
// A whole number in every form that a number has: exactly, so not by double.
bool ParseCsvInteger(absl::string_view text, int64_t& value);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_CSV_VALUES_H_
