#include "tidepool/backends/cpu/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tidepool::cpu {
namespace {

constexpr const char* kVariable = "TIDEPOOL_CPU_INSTRUCTIONS";
constexpr InstructionSet kAll[] = {InstructionSet::kPortable,   InstructionSet::kAvx2,
                                   InstructionSet::kAvx512,     InstructionSet::kAvx512Vnni,
                                   InstructionSet::kAvx512Bf16, InstructionSet::kAmxBf16};

#if defined(__x86_64__)
// Which clang 14 has no name for.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Which gcc 12 and clang 14 have no name for: the processor has tiles and their product of bf16, and the system saves their
// registers. It may still refuse them to a process.
bool HasAmxBf16() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;     // of EDX
  constexpr unsigned kTileStates = (1u << 17) | (1u << 18);  // of what the system saves
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (~d & (kBf16 | kTile)) != 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (~a & kTileStates) == 0;
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
  if (!__builtin_cpu_supports("avx512vnni")) return InstructionSet::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::kAvx512Vnni;
  return HasAmxBf16() ? InstructionSet::kAmxBf16 : InstructionSet::kAvx512Bf16;
#else
  return InstructionSet::kPortable;
#endif
}

std::atomic<bool>& SideBySideReads() {
#if defined(__x86_64__)
  static std::atomic<bool> are_fast = !__builtin_cpu_is("amd");
#else
  static std::atomic<bool> are_fast = true;
#endif
  return are_fast;
}

InstructionSet Decide() {
  const InstructionSet most = OfProcessor();
  const char* const wanted = std::getenv(kVariable);
  if (wanted == nullptr || *wanted == '\0') return most;
  for (const InstructionSet set : kAll) {
    if (set <= most && std::strcmp(wanted, InstructionSetName(set)) == 0) return set;
  }
  std::fprintf(
      stderr,
      "tidepool: %s: found \"%s\", expected portable, avx2, avx512, avx512_vnni, avx512_bf16 or "
      "amx_bf16, of which this processor has up to %s\n",
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
    case InstructionSet::kAvx512Vnni:
      return "avx512_vnni";
    case InstructionSet::kAvx512Bf16:
      return "avx512_bf16";
    case InstructionSet::kAmxBf16:
      return "amx_bf16";
  }
  return "unknown";
}

bool PairsOfBf16AreFast() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool SideBySideReadsAreFast() { return SideBySideReads().load(std::memory_order_relaxed); }
void SetSideBySideReadsForTesting(bool are_fast) { SideBySideReads() = are_fast; }

InstructionSet BestInstructionSet() {
  static const InstructionSet best = Decide();
  return best;
}

}  // namespace tidepool::cpu
