// CUDA C++ for the C++ compiler: qualifiers, built-in variables, vector types and the intrinsics
// that kernels of this repository use, run by the block runner. A device thread is a call on a fiber
// (block_runner.h). Arithmetic is the host's: nothing here rounds as a device's fast intrinsics do.
//
// Dynamic shared memory has no declaration that both compilers take: cuda/runtime/launch.h has
// DynamicShared<T>(). Static shared memory is for types without constructors.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/block_runner.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
// Of the operating system's thread: blocks follow one another on it.
#define __shared__ static thread_local
#define __align__(n) alignas(n)

#define threadIdx (::tidepool::cuda_emulation::current_thread->thread)
#define blockIdx (::tidepool::cuda_emulation::current_thread->block)
#define blockDim (::tidepool::cuda_emulation::current_thread->block_dim)
#define gridDim (::tidepool::cuda_emulation::current_thread->grid_dim)
inline constexpr int warpSize = 32;

// ---- vectors ------------------------------------------------------------------------------------

#define TIDEPOOL_VECTORS(T, name, a2, a4)                            \
  struct alignas(a2) name##2 {                                       \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(a4) name##4 {                                       \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TIDEPOOL_VECTORS(float, float, 8, 16)
TIDEPOOL_VECTORS(double, double, 16, 16)
TIDEPOOL_VECTORS(int, int, 8, 16)
TIDEPOOL_VECTORS(short, short, 4, 8)
TIDEPOOL_VECTORS(unsigned short, ushort, 4, 8)
TIDEPOOL_VECTORS(char, char, 2, 4)
TIDEPOOL_VECTORS(unsigned char, uchar, 2, 4)
TIDEPOOL_VECTORS(long long, longlong, 16, 16)
TIDEPOOL_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef TIDEPOOL_VECTORS
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- barriers, shuffles, votes ------------------------------------------------------------------

inline void __syncthreads() {
  using tidepool::cuda_emulation::BlockRunner;
  BlockRunner::Get().Barrier(BlockRunner::Vote::kNone, 0);
}
inline int __syncthreads_or(int value) {
  using tidepool::cuda_emulation::BlockRunner;
  return BlockRunner::Get().Barrier(BlockRunner::Vote::kAny, value);
}
inline int __syncthreads_and(int value) {
  using tidepool::cuda_emulation::BlockRunner;
  return BlockRunner::Get().Barrier(BlockRunner::Vote::kAll, value);
}
inline int __syncthreads_count(int value) {
  using tidepool::cuda_emulation::BlockRunner;
  return BlockRunner::Get().Barrier(BlockRunner::Vote::kCount, value);
}

namespace tidepool::cuda_emulation {

inline int Lane() { return current_thread->linear % 32; }

// The value of lane `source`, or the own one where that is outside [first, end) of the segment.
template <typename T>
T Shuffle(unsigned mask, T value, int source, int first, int end) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  BlockRunner& runner = BlockRunner::Get();
  auto* const exchange = runner.BeginExchange(mask, &value, sizeof(T));
  // What a lane outside of the mask has is undefined.
  if (source >= first && source < end) {
    if ((mask >> source & 1) != 0) {
      std::memcpy(&value, exchange->values[source], sizeof(T));
    } else {
      std::memset(&value, 0xff, sizeof(T));
    }
  }
  runner.EndExchange(exchange);
  return value;
}

// Combines the values of all lanes of the mask.
template <typename T, typename Combine>
T Combined(unsigned mask, T value, Combine combine) {
  BlockRunner& runner = BlockRunner::Get();
  auto* const exchange = runner.BeginExchange(mask, &value, sizeof(T));
  bool first = true;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    T other;
    std::memcpy(&other, exchange->values[lane], sizeof(T));
    value = first ? other : combine(value, other);
    first = false;
  }
  runner.EndExchange(exchange);
  return value;
}

}  // namespace tidepool::cuda_emulation

inline void __syncwarp(unsigned mask = 0xffffffff) {
  tidepool::cuda_emulation::Shuffle(mask, 0, 0, 0, 0);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = tidepool::cuda_emulation::Lane() / width * width;
  return tidepool::cuda_emulation::Shuffle(mask, value, first + (source & (width - 1)), first,
                                           first + width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = tidepool::cuda_emulation::Lane(), first = lane / width * width;
  return tidepool::cuda_emulation::Shuffle(mask, value, lane - static_cast<int>(by), first,
                                           first + width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = tidepool::cuda_emulation::Lane(), first = lane / width * width;
  return tidepool::cuda_emulation::Shuffle(mask, value, lane + static_cast<int>(by), first,
                                           first + width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int lane = tidepool::cuda_emulation::Lane(), first = lane / width * width;
  return tidepool::cuda_emulation::Shuffle(mask, value, lane ^ by, 0, first + width);
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  const unsigned bit = value != 0 ? 1u << tidepool::cuda_emulation::Lane() : 0u;
  return tidepool::cuda_emulation::Combined(mask, bit,
                                            [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
inline int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, value) == mask; }
inline unsigned __activemask() { return 1u << tidepool::cuda_emulation::Lane(); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return tidepool::cuda_emulation::Combined(mask, value,
                                            [](unsigned a, unsigned b) { return a + b; });
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- memory and atomics -------------------------------------------------------------------------

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
template <typename T>
T __ldcs(const T* pointer) {
  return *pointer;
}
template <typename T>
void __stcs(T* pointer, T value) {
  *pointer = value;
}

namespace tidepool::cuda_emulation {
// Device threads take turns, so plain reads and writes are atomic.
template <typename T, typename Function>
T Update(T* address, Function function) {
  const T old = *address;
  *address = function(old);
  return old;
}
}  // namespace tidepool::cuda_emulation

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address,
                                          [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address,
                                          [=](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address,
                                          [=](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address, [=](T old) { return old | value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return tidepool::cuda_emulation::Update(address,
                                          [=](T old) { return old == expected ? value : old; });
}

// ---- bits and arithmetic ------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
using std::max;
using std::min;

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
