// Products for kernels that are templates over f32 and f64, of one thread, and their scratch.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_TYPED_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_TYPED_PRODUCT_H_

#include <stddef.h>
#include <stdint.h>

#include "tidepool/backends/cpu/gemm/gemm.h"
#include "tidepool/backends/cpu/gemm/gemm_f64.h"

namespace tidepool::cpu {

struct OfF32 {
  using T = float;
  using Problem = GemmProblem;
  static size_t ScratchBytes(int64_t m, int64_t n, int64_t k) {
    return GemmScratchBytes(m, n, k, 1);
  }
  static void Multiply(const Problem& problem, void* scratch) { Gemm(problem, scratch, nullptr); }
};
struct OfF64 {
  using T = double;
  using Problem = GemmF64Problem;
  static size_t ScratchBytes(int64_t m, int64_t n, int64_t k) {
    return GemmF64ScratchBytes(m, n, k, 1);
  }
  static void Multiply(const Problem& problem, void* scratch) {
    GemmF64(problem, scratch, nullptr);
  }
};

// A matrix anywhere in memory.
template <typename T>
struct Matrix {
  T* data;
  int64_t row_stride, column_stride;

  Matrix Transposed() const { return {data, column_stride, row_stride}; }
};

// C [m, n], rows ldc apart, (+)= A [m, k] B [k, n].
template <typename Type, typename T = typename Type::T>
void Product(int64_t m, int64_t n, int64_t k, const Matrix<T>& a, const Matrix<T>& b, T* c,
             int64_t ldc, bool accumulate, void* scratch) {
  typename Type::Problem p = {};
  p.m = m, p.n = n, p.k = k;
  p.a = a.data, p.a_row_stride = a.row_stride, p.a_col_stride = a.column_stride;
  p.b = b.data, p.b_row_stride = b.row_stride, p.b_col_stride = b.column_stride;
  p.c = c, p.ldc = ldc, p.accumulate = accumulate;
  Type::Multiply(p, scratch);
}

// Hands out parts of a piece of scratch; with a null piece it counts only.
class Parts {
 public:
  explicit Parts(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <typename T>
  T* Take(int64_t count) {
    char* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  size_t bytes_ = 0;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_TYPED_PRODUCT_H_
