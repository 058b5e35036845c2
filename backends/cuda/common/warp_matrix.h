// A warp's product of small matrices by tensor cores, and how its fragments come out of shared memory: the
// instructions mma.sync, ldmatrix and cp.async of PTX (capability 8.0). In the emulation they are what they
// mean: lanes read one another's registers.
//
// Fragments of 32-bit registers, two 16-bit elements or one TF32 number each (a matrix has half as many of those
// along the summed axis); g = lane / 4, t = lane % 4:
//   A [16 rows, 16]     a[0]: row g, columns 2t and 2t + 1; a[1]: row g + 8; a[2], a[3]: eight columns on
//   B [16, 8 columns]   b[0]: rows 2t and 2t + 1 of column g; b[1]: eight rows on
//   C [16, 8], floats   c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_WARP_MATRIX_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_WARP_MATRIX_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"

namespace tidepool::cuda {

#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ < 800
#error "kernels of attention and convolution need --//backends/cuda:architectures of 80 and up"
#endif
__device__ __forceinline__ unsigned SharedAddress(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
#endif

// The bits of a number rounded to TF32. The emulation's has all of f32, as its cuBLAS and cuDNN do.
__device__ __forceinline__ uint32_t ToTf32(float value) {
#if defined(__CUDA_ARCH__)
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

// Two numbers rounded to T, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float first, float second) {
#if defined(__CUDA_ARCH__)
  uint32_t packed;
  if constexpr (std::is_same_v<T, Float16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  }
  return packed;
#else
  return static_cast<uint32_t>(T(first).bits) | static_cast<uint32_t>(T(second).bits) << 16;
#endif
}

// 2^x by the special function unit: off by 2 ulp, 0 where the result is denormal.
__device__ __forceinline__ float QuickExp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return Exp2(x);
#endif
}

// c += A B. T is a 16-bit float; float is of numbers in TF32.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Float16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else if constexpr (std::is_same_v<T, float>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif defined(TIDEPOOL_CUDA_EMULATED)
  auto& runner = cuda_emulation::BlockRunner::Get();
  const int g = cuda_emulation::Lane() / 4, t = cuda_emulation::Lane() % 4;
  const uint32_t b[2] = {b0, b1};
  constexpr int kPerWord = 4 / sizeof(T), kDepth = 8 * kPerWord;
  auto number = [](uint32_t word, int i) {
    if constexpr (std::is_same_v<T, float>) {
      float element;
      std::memcpy(&element, &word, sizeof(element));
      return element;
    } else {
      T element;
      element.bits = static_cast<uint16_t>(word >> 16 * i);
      return static_cast<float>(element);
    }
  };
  uint32_t registers[4];
  float rows[2][kDepth], columns[kDepth][2];
  auto* exchange = runner.BeginExchange(0xffffffff, a, 16);
  for (int u = 0; u < 4; ++u) {
    std::memcpy(registers, exchange->values[4 * g + u], 16);
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < kPerWord; ++i)
        rows[r % 2][(r / 2 * 4 + u) * kPerWord + i] = number(registers[r], i);
    }
  }
  runner.EndExchange(exchange);
  exchange = runner.BeginExchange(0xffffffff, b, 8);
  for (int column = 0; column < 2; ++column) {
    for (int u = 0; u < 4; ++u) {
      std::memcpy(registers, exchange->values[4 * (2 * t + column) + u], 8);
      for (int r = 0; r < 2; ++r) {
        for (int i = 0; i < kPerWord; ++i)
          columns[(r * 4 + u) * kPerWord + i][column] = number(registers[r], i);
      }
    }
  }
  runner.EndExchange(exchange);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < kDepth; ++k) c[i] += rows[i / 2][k] * columns[k][i % 2];
  }
#endif
}

// Four matrices of 8 rows of 16 bytes; lane 8 m + i names row i of matrix m. Of each the lane gets the elements
// 2t and 2t + 1 of row g; transposed: of column g.
template <bool kTransposed>
__device__ __forceinline__ void LoadMatrices(uint32_t (&registers)[4], const void* row) {
#if defined(__CUDA_ARCH__)
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
#elif defined(TIDEPOOL_CUDA_EMULATED)
  auto& runner = cuda_emulation::BlockRunner::Get();
  const int g = cuda_emulation::Lane() / 4, t = cuda_emulation::Lane() % 4;
  auto* const exchange = runner.BeginExchange(0xffffffff, &row, sizeof(row));
  for (int m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const char* from;
      std::memcpy(&from, exchange->values[8 * m + (kTransposed ? 2 * t + i : g)], sizeof(from));
      std::memcpy(&pair[i], from + 2 * (kTransposed ? g : 2 * t + i), 2);
    }
    registers[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
  runner.EndExchange(exchange);
#endif
}

// 16 bytes from global to shared memory, or zeros; they are there after WaitForCopies and a barrier.
__device__ __forceinline__ void CopyAsync(void* shared, const void* global, bool real) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(real ? 16 : 0)
               : "memory");
#else
  if (real) {
    std::memcpy(shared, global, 16);
  } else {
    std::memset(shared, 0, 16);
  }
#endif
}
// Ends a group of copies.
__device__ __forceinline__ void CommitCopies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// All groups of this thread but the last kLeft are there.
template <int kLeft>
__device__ __forceinline__ void WaitForCopies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_WARP_MATRIX_H_
