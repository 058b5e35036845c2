// Amounts of memory as people write them.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_BYTES_OF_TEXT_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_BYTES_OF_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

// "67108864", "64KiB", "512 MiB", "2GiB", "1.5GiB", "25%" (of MachineMemoryBytes(), up to 100). At least one byte; blanks may stand
// before the unit. Throws kInvalidArgument, which begins with `what` ("flag --budget") and says what was found and expected.
int64_t BytesOfText(absl::string_view what, absl::string_view text);
// The same, where "25%" is of `whole` bytes.
int64_t BytesOfText(absl::string_view what, absl::string_view text, int64_t whole);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_BYTES_OF_TEXT_H_
