#include "tidepool/backends/cpu/instruction_set.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/backends/cpu/pointwise_span.h"

namespace tidepool::cpu {
namespace {

// In a process of its own each, which ends with 0 where all loops are those of the set.
void ExpectAllUse(const char* set) {
  EXPECT_EXIT(
      {
        setenv("TIDEPOOL_CPU_INSTRUCTIONS", set, 1);
        const bool all = std::string(InstructionSetName(BestInstructionSet())) == set &&
                         std::string(ThisMachine().name) == set &&
                         std::string(SelectedTileKernels().name) == set;
        std::exit(all ? 0 : 1);
      },
      testing::ExitedWithCode(0), "")
      << set;
}

// Each process asks once, so nothing here asks before its child does.
TEST(InstructionSetDeathTest, LessCanBeAskedForAndOthersAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ExpectAllUse("portable");
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) ExpectAllUse("avx2");
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    ExpectAllUse("avx512");
#endif
  EXPECT_DEATH(
      {
        setenv("TIDEPOOL_CPU_INSTRUCTIONS", "sse9", 1);
        BestInstructionSet();
      },
      "found \"sse9\", expected portable, avx2, avx512, avx512_vnni, avx512_bf16 or amx_bf16");
}

}  // namespace
}  // namespace tidepool::cpu
