// The tidepool::Error a call throws, for tests of messages.
//
//   EXPECT_THAT(ErrorOf([&] { ReadIdx(path, 3); }),
//               IsError(StatusCode::kDataLoss, {path, "byte 4"}));
#ifndef TIDEPOOL_MEMORY_IO_TESTING_ERROR_OF_H_
#define TIDEPOOL_MEMORY_IO_TESTING_ERROR_OF_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "tidepool/memory/error.h"

namespace tidepool {

// A failure of the test, and an Error of code kOk, if nothing is thrown.
Error ErrorOf(absl::FunctionRef<void()> function);

// Empty, or what is wrong with the message: empty, more than one line, absurdly long.
std::string MessageFlaw(const Error& error);

// The code, every one of `parts` in the message, and a message of one line.
::testing::Matcher<const Error&> IsError(absl::StatusCode code, std::vector<std::string> parts);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_TESTING_ERROR_OF_H_
