#include "tidepool/backends/cpu/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tidepool::cpu {
namespace {

constexpr const char* kVariable = "TIDEPOOL_CPU_INSTRUCTIONS";
constexpr InstructionSet kAll[] = {InstructionSet::kPortable, InstructionSet::kAvx2,
                                   InstructionSet::kAvx512, InstructionSet::kAvx512Bf16};

#if defined(__x86_64__)
// Which clang 14 has no name for.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

InstructionSet OfProcessor() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !HasF16c()) {
    return InstructionSet::kPortable;
  }
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!has_avx512) return InstructionSet::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? InstructionSet::kAvx512Bf16
                                              : InstructionSet::kAvx512;
#else
  return InstructionSet::kPortable;
#endif
}

InstructionSet Decide() {
  const InstructionSet most = OfProcessor();
  const char* const wanted = std::getenv(kVariable);
  if (wanted == nullptr || *wanted == '\0') return most;
  for (const InstructionSet set : kAll) {
    if (set <= most && std::strcmp(wanted, InstructionSetName(set)) == 0) return set;
  }
  std::fprintf(stderr,
               "tidepool: %s: found \"%s\", expected portable, avx2, avx512 or avx512_bf16, of "
               "which this processor has up to %s\n",
               kVariable, wanted, InstructionSetName(most));
  std::abort();
}

}  // namespace

const char* InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return "portable";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

InstructionSet BestInstructionSet() {
  static const InstructionSet best = Decide();
  return best;
}

}  // namespace tidepool::cpu
