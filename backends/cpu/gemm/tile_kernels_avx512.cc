// Tiles for AVX-512, packing, and the table with the tiles of tile_avx512.S. Compiled with -mavx512f: it must not emit an inline function that other files emit
// too (the linker might keep this copy for all processors), so it uses no standard library templates.
//
// 32 registers hold tiles of 12 rows of 32 floats: 24 sums, two vectors of B, the rest for elements of A, each of which
// is loaded once for two multiply-adds. Those, which have most of the work, are in assembly; narrower ones are here. Each element
// is summed in the order of the tiles of AVX2, so the bits are theirs. Products of single rows are as fast as memory with AVX2's.
#include "tidepool/backends/cpu/gemm/tile_kernels.h"

#if defined(__x86_64__) && defined(__ELF__)

#include <immintrin.h>

#define TIDEPOOL_DECLARE_TILE(rows, vectors) \
  extern "C" void tidepool_tile_avx512_##rows##x##vectors(const tidepool::cpu::TileArgs*);
#define TIDEPOOL_DECLARE_SIX_TILES(vectors) \
  TIDEPOOL_DECLARE_TILE(1, vectors)         \
  TIDEPOOL_DECLARE_TILE(2, vectors)         \
  TIDEPOOL_DECLARE_TILE(3, vectors)         \
  TIDEPOOL_DECLARE_TILE(4, vectors)         \
  TIDEPOOL_DECLARE_TILE(5, vectors)         \
  TIDEPOOL_DECLARE_TILE(6, vectors)
TIDEPOOL_DECLARE_SIX_TILES(4)
TIDEPOOL_DECLARE_TILE(7, 4)
TIDEPOOL_DECLARE_TILE(8, 4)
TIDEPOOL_DECLARE_TILE(9, 4)
TIDEPOOL_DECLARE_TILE(10, 4)
TIDEPOOL_DECLARE_TILE(11, 4)
TIDEPOOL_DECLARE_TILE(12, 4)
TIDEPOOL_DECLARE_SIX_TILES(6)
TIDEPOOL_DECLARE_TILE(7, 6)
TIDEPOOL_DECLARE_TILE(8, 6)
TIDEPOOL_DECLARE_SIX_TILES(8)

namespace tidepool::cpu {
namespace {

constexpr __mmask16 FirstOf(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

// Rows of a tile by registers across: 24 sums.
constexpr int kMostRows[] = {0, 12, 12, 8, 6};

// Distances of successive elements of A.
struct Neighbours {
  static constexpr int64_t kBytes = sizeof(float);
};
struct Packed {
  static constexpr int64_t kBytes = kVectorFloats * sizeof(float);
};

// `kVectors` of 8 floats: whole registers, and half a one.
template <int kRows, int kVectors>
void Tile(const TileArgs* args) {
  constexpr int kRegisters = (kVectors + 1) / 2, kLast = kRegisters - 1;
  constexpr __mmask16 kReadable = FirstOf(kVectors % 2 == 0 ? 16 : 8);  // of the last
  __m512 sums[kRows][kRegisters];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kRegisters; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  const char* rows[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) rows[r] = reinterpret_cast<const char*>(args->a_rows[r]);
  const char* b = reinterpret_cast<const char*>(args->b);
  const auto step = [&](int64_t a_offset, int64_t b_offset) __attribute__((always_inline)) {
    __m512 columns[kRegisters];
#pragma GCC unroll 4
    for (int v = 0; v < kLast; ++v) columns[v] = _mm512_loadu_ps(b + b_offset + 64 * v);
    columns[kLast] = _mm512_maskz_loadu_ps(kReadable, b + b_offset + 64 * kLast);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 element = _mm512_set1_ps(*reinterpret_cast<const float*>(rows[r] + a_offset));
#pragma GCC unroll 4
      for (int v = 0; v < kRegisters; ++v)
        sums[r][v] = _mm512_fmadd_ps(element, columns[v], sums[r][v]);
    }
  };
  constexpr int64_t kPacked = 32 * kVectors;  // bytes between rows of a packed panel
  constexpr int64_t kAtOnce = 4;              // steps from one set of addresses
  const int64_t a_step = args->a_step, b_step = args->b_step, length = args->segment_length;
  // Elements of A that are neighbours, or packed.
  const auto several = [&](auto distance, int64_t* offset, int64_t* i)
      __attribute__((always_inline)) {
    constexpr int64_t kStep = decltype(distance)::kBytes;
    for (; *i + kAtOnce <= length;
         *i += kAtOnce, *offset += kAtOnce * kStep, b += kAtOnce * kPacked) {
#pragma GCC unroll 4
      for (int64_t next = 0; next < kAtOnce; ++next) step(*offset + next * kStep, next * kPacked);
    }
  };
  for (const int64_t* segment = args->segments_begin; segment != args->segments_end; ++segment) {
    int64_t offset = *segment, i = 0;
    if (b_step == kPacked && a_step == Neighbours::kBytes) several(Neighbours(), &offset, &i);
    if (b_step == kPacked && a_step == Packed::kBytes) several(Packed(), &offset, &i);
    for (; i < length; ++i, offset += a_step, b += b_step) step(offset, 0);
  }
  const __mmask16 valid = FirstOf(8 * (kVectors - 1) + args->tail - 16 * kLast);  // of the last
  const int64_t flags = args->flags;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* const c =
        reinterpret_cast<float*>(reinterpret_cast<char*>(args->c_rows[r]) + args->c_offset);
#pragma GCC unroll 4
    for (int v = 0; v < kRegisters; ++v) {
      const __mmask16 mask = v == kLast ? valid : FirstOf(16);
      __m512 sum = sums[r][v];
      if (flags & kTileAccumulate)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + 16 * v), sum);
      if (args->bias != nullptr) {
        sum = _mm512_add_ps(
            _mm512_maskz_loadu_ps(v == kLast ? kReadable : FirstOf(16), args->bias + 16 * v), sum);
      }
      // The second operand is the result when either is NaN.
      if (flags & kTileRelu) sum = _mm512_max_ps(_mm512_setzero_ps(), sum);
      _mm512_mask_storeu_ps(c + 16 * v, mask, sum);
    }
  }
}

template <int kVectors, int kRows>
void SetTiles(TileKernels* kernels) {
  kernels->tile[kVectors][kRows] = &Tile<kRows, kVectors>;
  if constexpr (kRows == kMostRows[(kVectors + 1) / 2]) kernels->max_rows[kVectors] = kRows;
  if constexpr (kRows > 1) SetTiles<kVectors, kRows - 1>(kernels);
}

// Sixteen rows of sixteen.
void Transpose(__m512 (&v)[16]) {
  __m512d pairs[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_castps_pd(_mm512_unpacklo_ps(v[i], v[i + 1]));
    pairs[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(v[i], v[i + 1]));
  }
  __m512 fours[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[i], pairs[i + 2]));
    fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[i], pairs[i + 2]));
    fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[i + 1], pairs[i + 3]));
    fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[i + 1], pairs[i + 3]));
  }
  // Quarter q of fours[4 * g + c] is of rows 4 * g.. and of column 4 * q + c.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low = _mm512_shuffle_f32x4(fours[c], fours[4 + c], 0x44);
    const __m512 high = _mm512_shuffle_f32x4(fours[c], fours[4 + c], 0xee);
    const __m512 next_low = _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0x44);
    const __m512 next_high = _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0xee);
    v[c] = _mm512_shuffle_f32x4(low, next_low, 0x88);
    v[4 + c] = _mm512_shuffle_f32x4(low, next_low, 0xdd);
    v[8 + c] = _mm512_shuffle_f32x4(high, next_high, 0x88);
    v[12 + c] = _mm512_shuffle_f32x4(high, next_high, 0xdd);
  }
}

__mmask16 UpTo16(int64_t count) { return FirstOf(count < 0 ? 0 : count > 16 ? 16 : count); }

// Panels; strips of A, which are narrower than a register, are AVX2's.
void PackPanel(const float* source, int64_t row_stride, int64_t column_stride, int64_t depth,
               int64_t columns, int64_t width, float* destination) {
  if (width < 16 || (column_stride != 1 && row_stride != 1)) {
    return Avx2TileKernels()->pack_panel(source, row_stride, column_stride, depth, columns, width,
                                         destination);
  }
  for (int64_t j = 0; column_stride != 1 && j < width; j += 16) {
    const float* from = source + j * column_stride;
    float* to = destination + j;
    for (int64_t i = 0; i < depth; i += 16, from += 16) {
      const __mmask16 exist = UpTo16(depth - i);
      __m512 v[16];
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) {
        v[q] = j + q < columns ? _mm512_maskz_loadu_ps(exist, from + q * column_stride)
                               : _mm512_setzero_ps();
      }
      Transpose(v);
      const int64_t count = depth - i;
      const __mmask16 there = UpTo16(width - j);
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q, to += width) {
        if (q < count) _mm512_mask_storeu_ps(to, there, v[q]);
      }
    }
  }
  if (column_stride != 1) return;
  const int64_t registers = width / 16;
  const __mmask16 half = FirstOf(width % 16);
  __mmask16 exist[kMaxTileVectors / 2 + 1];
  for (int64_t v = 0; v <= registers; ++v) exist[v] = UpTo16(columns - 16 * v);
  for (int64_t i = 0; i < depth; ++i, source += row_stride, destination += width) {
    for (int64_t v = 0; v < registers; ++v)
      _mm512_storeu_ps(destination + 16 * v, _mm512_maskz_loadu_ps(exist[v], source + 16 * v));
    if (half != 0) {
      _mm512_mask_storeu_ps(destination + 16 * registers, half,
                            _mm512_maskz_loadu_ps(exist[registers], source + 16 * registers));
    }
  }
}

TileKernels Make(const TileKernels& avx2) {
  TileKernels kernels = avx2;
  kernels.name = "avx512";
  kernels.max_vectors = kernels.usual_vectors = 8;
  SetTiles<1, 12>(&kernels);
  SetTiles<2, 12>(&kernels);
  SetTiles<3, 12>(&kernels);
  SetTiles<5, 8>(&kernels);
  SetTiles<7, 6>(&kernels);
#define TIDEPOOL_SET_TILE(rows, vectors) \
  kernels.tile[vectors][rows] = tidepool_tile_avx512_##rows##x##vectors;
#define TIDEPOOL_SET_SIX_TILES(vectors) \
  TIDEPOOL_SET_TILE(1, vectors)         \
  TIDEPOOL_SET_TILE(2, vectors)         \
  TIDEPOOL_SET_TILE(3, vectors)         \
  TIDEPOOL_SET_TILE(4, vectors)         \
  TIDEPOOL_SET_TILE(5, vectors)         \
  TIDEPOOL_SET_TILE(6, vectors)
  TIDEPOOL_SET_SIX_TILES(4)
  TIDEPOOL_SET_TILE(7, 4)
  TIDEPOOL_SET_TILE(8, 4)
  TIDEPOOL_SET_TILE(9, 4)
  TIDEPOOL_SET_TILE(10, 4)
  TIDEPOOL_SET_TILE(11, 4)
  TIDEPOOL_SET_TILE(12, 4)
  TIDEPOOL_SET_SIX_TILES(6)
  TIDEPOOL_SET_TILE(7, 6)
  TIDEPOOL_SET_TILE(8, 6)
  TIDEPOOL_SET_SIX_TILES(8)
  kernels.max_rows[4] = 12, kernels.max_rows[6] = 8, kernels.max_rows[8] = 6;
  kernels.pack_panel = &PackPanel;
  return kernels;
}

}  // namespace

const TileKernels* Avx512TileKernels() {
  static const TileKernels kernels = Make(*Avx2TileKernels());
  return &kernels;
}

}  // namespace tidepool::cpu

#else

namespace tidepool::cpu {
const TileKernels* Avx512TileKernels() { return nullptr; }
}  // namespace tidepool::cpu

#endif  // defined(__x86_64__) && defined(__ELF__)
