// What docs/spilling.md shows.
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/spill/spilled_array.h"

namespace tidepool {
namespace {

// [array]
float SumAfterWaiting(SpillFile& file) {
  NDArray activations = RandomUniform({256, 1024}, -1, 1, /*seed=*/1);
  SpilledArray waits(file, activations);  // written when this returns
  activations = NDArray();                // its memory is free now

  const NDArray other = RandomUniform({256, 1024}, -1, 1, /*seed=*/2);

  waits.Prefetch();  // read beside what comes next
  const NDArray busy = Sum(Tanh(other));
  activations = waits.Restore();  // shape, type and bits of before
  return Sum(activations).Item<float>();
}
// [array]

// [bytes]
SpilledBytes WriteBeside(SpillFile& file, const std::string& text) {
  SpillTransfer writes = file.BeginWrite(text.data(), text.size());
  // ... text must stay as it is until then ...
  return writes.Wait();
}
// [bytes]

TEST(Spilling, AnArrayWaitsInAFile) {
  SpillFile file({.folder = testing::TempDir(), .capacity_bytes = int64_t{1} << 30});
  EXPECT_EQ(SumAfterWaiting(file), Sum(RandomUniform({256, 1024}, -1, 1, 1)).Item<float>());
  EXPECT_EQ(file.stats().reads, 1);
  EXPECT_EQ(file.stats().used_bytes, 0);
}

TEST(Spilling, BytesWithoutArrays) {
  SpillFile file({.folder = testing::TempDir()});
  std::string text(100000, 'x');
  const SpilledBytes kept = WriteBeside(file, text);
  text.assign(text.size(), ' ');
  file.Read(kept, text.data());
  EXPECT_EQ(text, std::string(100000, 'x'));
  EXPECT_EQ(file.stats().used_bytes, 102400);  // whole pages
}

}  // namespace
}  // namespace tidepool
