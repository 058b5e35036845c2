// Tiles of bf16 for InstructionSet::kAmxBf16; called only where the process may use AMX. No standard library templates, as in
// tile_kernels_avx512.cc.
#include "tidepool/backends/cpu/gemm/tile_bf16_amx.h"

#if defined(__x86_64__) && defined(__ELF__)

#include <immintrin.h>

namespace tidepool::cpu {
namespace {

// What the instruction that sets the registers' shape reads.
struct alignas(64) Shapes {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
constexpr Shapes kShapes = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// The intrinsics of gcc 12 do not say which memory they read.
void MemoryBarrier() { __asm__ volatile("" ::: "memory"); }

// Registers 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B. A's lines are needed once for each panel of B and would push that out
// of the first-level cache: they are loaded with the hint that says so.
template <int kGroups, int kHalves>
void Step(const char* first, int64_t first_bytes, const char* second, int64_t second_bytes,
          const char* b) {
  constexpr int64_t kPairBytes = 128;
  _tile_stream_loadd(4, first, first_bytes);
  _tile_loadd(6, b, kPairBytes);
  if (kHalves == 2) _tile_loadd(7, b + 64, kPairBytes);
  if (kGroups == 2) _tile_stream_loadd(5, second, second_bytes);
  _tile_dpbf16ps(0, 4, 6);
  if (kHalves == 2) _tile_dpbf16ps(1, 4, 7);
  if (kGroups == 2) _tile_dpbf16ps(2, 5, 6);
  if (kGroups == 2 && kHalves == 2) _tile_dpbf16ps(3, 5, 7);
}

template <int kGroups, int kHalves>
void Multiply(const AmxTileArgs& args) {
  constexpr int64_t kSumBytes = 128;
  MemoryBarrier();
  float* const sums = args.sums;
  if (args.reads_sums) {
    _tile_loadd(0, sums, kSumBytes);
    if (kHalves == 2) _tile_loadd(1, sums + 16, kSumBytes);
    if (kGroups == 2) _tile_loadd(2, sums + 512, kSumBytes);
    if (kGroups == 2 && kHalves == 2) _tile_loadd(3, sums + 528, kSumBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const AmxRows &first = args.groups[0], &second = args.groups[kGroups - 1];
  const char* a0 = static_cast<const char*>(first.rows);
  const char* a1 = static_cast<const char*>(second.rows);
  const int64_t bytes0 = first.row_bytes, bytes1 = second.row_bytes;
  const char* b = static_cast<const char*>(args.b);
  for (int64_t i = 0; i < args.steps; ++i, a0 += 64, a1 += 64, b += 128 * kAmxPairs)
    Step<kGroups, kHalves>(a0, bytes0, a1, bytes1, b);
  if (args.has_tail) {
    Step<kGroups, kHalves>(static_cast<const char*>(first.tail), first.tail_row_bytes,
                           static_cast<const char*>(second.tail), second.tail_row_bytes, b);
  }
  _tile_stored(0, sums, kSumBytes);
  if (kHalves == 2) _tile_stored(1, sums + 16, kSumBytes);
  if (kGroups == 2) _tile_stored(2, sums + 512, kSumBytes);
  if (kGroups == 2 && kHalves == 2) _tile_stored(3, sums + 528, kSumBytes);
  MemoryBarrier();
}

void Begin() { _tile_loadconfig(&kShapes); }
void End() { _tile_release(); }

}  // namespace

const AmxTiles* BuiltAmxTiles() {
  static constexpr AmxTiles kTiles = {{{nullptr, nullptr, nullptr},
                                       {nullptr, &Multiply<1, 1>, &Multiply<1, 2>},
                                       {nullptr, &Multiply<2, 1>, &Multiply<2, 2>}},
                                      &Begin,
                                      &End};
  return &kTiles;
}

}  // namespace tidepool::cpu

#else

namespace tidepool::cpu {
const AmxTiles* BuiltAmxTiles() { return nullptr; }
}  // namespace tidepool::cpu

#endif  // defined(__x86_64__) && defined(__ELF__)
