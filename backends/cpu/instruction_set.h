// Which instructions this backend's loops may use on the processor at hand. Each kind of loops is compiled for some of these
// sets, in a source of its own flags, and looks here once which of its tables to use.
#ifndef TIDEPOOL_BACKENDS_CPU_INSTRUCTION_SET_H_
#define TIDEPOOL_BACKENDS_CPU_INSTRUCTION_SET_H_

#include <cstdint>

namespace tidepool::cpu {

// Each has what those before it have.
enum class InstructionSet : uint8_t {
  kPortable,
  kAvx2,        // with FMA and F16C, as processors since 2013 (Intel) and 2015 (AMD)
  kAvx512,      // F, BW, DQ and VL
  kAvx512Vnni,  // for products of 8 bits, as processors since 2019 (Intel) and 2022 (AMD)
  kAvx512Bf16,  // for products of bf16, as processors since 2021 (Intel) and 2022 (AMD)
  kAmxBf16,     // for products of bf16 by matrices of 16 rows, as processors since 2023 (Intel)
};
// Whether the instruction that multiplies pairs of bf16 (AVX512_BF16) does more products than a multiply-add of f32 in the same
// time. Intel's processors begin one in two cycles and two multiply-adds in each: half as many.
bool PairsOfBf16AreFast();
// Whether a core gains by reading several places side by side. Intel's do; AMD's of the fourth generation, which read ahead by
// themselves where a loop goes straight on, lose a tenth by it. Any thread; tests may say otherwise.
bool SideBySideReadsAreFast();
void SetSideBySideReadsForTesting(bool are_fast);
// "portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16" or "amx_bf16".
const char* InstructionSetName(InstructionSet set);

// The most that the processor has, or as little as TIDEPOOL_CPU_INSTRUCTIONS in the environment names. Another word there, or more
// than the processor has, ends the program. Asked once; any thread.
InstructionSet BestInstructionSet();

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INSTRUCTION_SET_H_
