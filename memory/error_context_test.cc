#include "tidepool/memory/error_context.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

class LostError : public Error {
 public:
  explicit LostError(int64_t which) : Error(absl::StatusCode::kNotFound, "lost"), which_(which) {}
  int64_t which() const { return which_; }

 private:
  int64_t which_;
};

template <typename Kind>
const Kind& Caught(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Kind& kind) {
    return kind;
  }
}

TEST(ErrorContext, IsOfACopyAndLeavesTheOriginalAlone) {
  const std::exception_ptr kept =
      std::make_exception_ptr(Error(absl::StatusCode::kUnavailable, "disk"));
  for (int i = 0; i < 3; ++i) {
    const std::exception_ptr copy = WithContext(kept, "batch 3");
    EXPECT_EQ(Caught<Error>(copy).message(), "batch 3: disk");
    EXPECT_EQ(Caught<Error>(copy).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Caught<Error>(kept).message(), "disk");
  }
}

TEST(ErrorContext, KindsAreKept) {
  const std::exception_ptr memory =
      WithContext(std::make_exception_ptr(OutOfMemoryError("no room", "the report")), "step");
  EXPECT_EQ(Caught<OutOfMemoryError>(memory).report(), "the report");
  EXPECT_EQ(Caught<OutOfMemoryError>(memory).message(), "step: no room");
  const std::exception_ptr lost = std::make_exception_ptr(LostError(7));
  EXPECT_EQ(Caught<LostError>(WithContext<LostError>(lost, "step")).which(), 7);
  EXPECT_EQ(Caught<LostError>(WithContext<LostError>(lost, "step")).message(), "step: lost");
  // Of what nobody here can copy the kind matters more.
  EXPECT_EQ(WithContext(lost, "step"), lost);
  EXPECT_EQ(Caught<LostError>(lost).message(), "lost");
  const std::exception_ptr other = std::make_exception_ptr(std::runtime_error("other"));
  EXPECT_EQ(WithContext(other, "step"), other);
}

}  // namespace
}  // namespace tidepool
