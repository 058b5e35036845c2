#include "tidepool/memory/error.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

TEST(Error, ReachesADependentAsAStatus) {
  const absl::Status status =
      tidepool::CatchStatus([] { tidepool::ThrowNotFound("weights.bin: no such file"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "weights.bin: no such file");
}
