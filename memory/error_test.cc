#include "tidepool/memory/error.h"

#include <cerrno>
#include <new>
#include <stdexcept>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(CatchStatus, KeepsCodeAndMessage) {
  absl::Status status = CatchStatus([] { ThrowDataLoss("file.gz: truncated at byte 7"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "file.gz: truncated at byte 7");
}

TEST(CatchStatus, OkWhenNothingIsThrown) {
  EXPECT_TRUE(CatchStatus([] {}).ok());
}

TEST(CatchStatus, MapsForeignExceptions) {
  EXPECT_EQ(CatchStatus([] { throw std::bad_alloc(); }).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CatchStatus([] { throw std::out_of_range("x"); }).code(), absl::StatusCode::kInternal);
}

TEST(Error, ErrnoBecomesACodeAndAText) {
  try {
    ThrowErrno(ENOENT, "open model.bin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(error.message(), "open model.bin: No such file or directory");
  }
}

TEST(Error, ContextComesFirst) {
  Error error(absl::StatusCode::kInternal, "x");
  error.AddContext("layer 3");
  EXPECT_STREQ(error.what(), "layer 3: x");
}

TEST(OutOfMemoryError, CarriesTheReport) {
  OutOfMemoryError error("need 10", "host: 5");
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.report(), "host: 5");
}

}  // namespace
}  // namespace tidepool
