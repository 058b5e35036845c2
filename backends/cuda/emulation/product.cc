#include "tidepool/backends/cuda/emulation/product.h"

#include "tidepool/backends/cuda/emulation/emulation.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::cuda_emulation {
namespace {

constexpr int64_t kLongSum = 64;

template <typename T>
void Multiply(const Product& p) {
  for (int64_t item = 0; item < p.batch; ++item) {
    const T* a = static_cast<const T*>(p.a) + item * p.a_stride;
    const T* b = static_cast<const T*>(p.b) + item * p.b_stride;
    T* c = static_cast<T*>(p.c) + item * p.c_stride;
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.m; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          if (p.adds_parts_in_output && p.k >= kLongSum && l == p.k / 2) {
            sum = static_cast<double>(T(sum));
          }
          const auto left =
              static_cast<double>(p.transpose_a ? a[l + i * p.lda] : a[i + l * p.lda]);
          const auto right =
              static_cast<double>(p.transpose_b ? b[j + l * p.ldb] : b[l + j * p.ldb]);
          sum += left * right;
        }
        T& place = c[i + j * p.ldc];
        // Not read when beta is 0.
        double result = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * static_cast<double>(place));
        if (p.bias != nullptr) result += static_cast<double>(static_cast<const T*>(p.bias)[i]);
        if (p.relu) result = result > 0 ? result : 0;
        place = T(result);
      }
    }
  }
}

// Bytes that a batch of column-major matrices reaches over.
size_t Reach(int64_t rows, int64_t columns, int64_t ld, int64_t stride, int64_t batch,
             size_t width) {
  if (rows == 0 || columns == 0 || batch == 0) return 0;
  return static_cast<size_t>((columns - 1) * ld + rows + (batch - 1) * stride) * width;
}

}  // namespace

size_t ElementBytes(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

void RunProduct(const Product& product, cudaDataType type) {
  ++Emulation::Get().counters.products;
  switch (type) {
    case CUDA_R_32F:
      return Multiply<float>(product);
    case CUDA_R_64F:
      return Multiply<double>(product);
    case CUDA_R_16F:
      return Multiply<Float16>(product);
    default:
      return Multiply<BFloat16>(product);
  }
}

void CheckOperand(const char* name, const void* at, size_t bytes) {
  if (bytes > 0 && !Emulation::Get().memory.IsDevice(at, bytes)) {
    Die("%s of a product, %p, %zu bytes: not mapped memory of a device", name, at, bytes);
  }
}

void CheckOperands(const Product& p, cudaDataType type) {
  const size_t width = ElementBytes(type);
  CheckOperand("matrix A", p.a,
               Reach(p.a_rows(), p.transpose_a ? p.m : p.k, p.lda, p.a_stride, p.batch, width));
  CheckOperand("matrix B", p.b,
               Reach(p.b_rows(), p.transpose_b ? p.k : p.n, p.ldb, p.b_stride, p.batch, width));
  CheckOperand("matrix C", p.c, Reach(p.m, p.n, p.ldc, p.c_stride, p.batch, width));
  if (p.bias != nullptr) CheckOperand("bias", p.bias, static_cast<size_t>(p.m) * width);
}

}  // namespace tidepool::cuda_emulation
