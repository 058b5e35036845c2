// GemmBf16 by AMX: the same sums of pairs, of 16 rows and 16 columns at once.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_AMX_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_AMX_H_

#include "tidepool/backends/cpu/gemm/gemm_bf16.h"
#include "tidepool/backends/cpu/gemm/tile_bf16.h"
#include "tidepool/backends/cpu/gemm/tile_bf16_amx.h"

namespace tidepool::cpu {

// Whether that pays: setting the registers' shape and giving them back takes as long as a few thousand products.
inline bool IsForAmx(int64_t m, int64_t n, int64_t k) { return m * n * k >= 1 << 13; }

// Bytes of scratch of each thread, a multiple of 64: at most about 1.3 MiB.
size_t AmxScratchBytes(int64_t m, int64_t n, int64_t k);
// The product, of m and n of at least 1. `tiles` packs and rounds.
void GemmBf16ByAmx(const AmxTiles& amx, const Bf16Tiles& tiles, const GemmBf16Problem& problem,
                   void* scratch, ThreadPool* pool);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_AMX_H_
