// Matrix products on oneDNN's single-precision GEMM.
//
// A large product is cut into tiles that depend on its shape alone, so that results are the same
// bits for any number of threads; our threads take tiles, oneDNN itself works on one. GEMM
// takes memory from malloc during the call (16 KiB where it does not pack, which are the calls it runs
// by default; nothing for one row): there is no way to hand it ours.
#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/onednn/choice.h"
#include "tidepool/backends/onednn/one_thread.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::onednn {
namespace {

// About 50 us of work: packing is paid for each tile, waking a thread a few us.
constexpr int64_t kMultiplyAddsPerTile = 1 << 21;
constexpr int64_t kMaxTiles = 16;
constexpr int64_t kLeastRows = 64, kLeastColumns = 128;

ProductShape ShapeOf(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& z = call.outputs[0];
  return {z.dims[0], z.dims[1], call.inputs[0].dims[a.transpose_x ? 0 : 1], a.transpose_x,
          a.transpose_y};
}

struct Tiles {
  int64_t rows, columns;  // of a tile
  int64_t row_count, column_count;
};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tiles TilesOf(const ProductShape& s) {
  const int64_t wanted = std::clamp<int64_t>(s.m * s.n * s.k / kMultiplyAddsPerTile, 1, kMaxTiles);
  const int64_t row_parts = std::clamp<int64_t>(s.m / kLeastRows, 1, wanted);
  const int64_t column_parts = std::clamp<int64_t>(s.n / kLeastColumns, 1, wanted / row_parts);
  Tiles t;
  t.rows = CeilDiv(CeilDiv(s.m, row_parts), 8) * 8;  // register tiles are 8, 16 or 24 wide
  t.columns = CeilDiv(CeilDiv(s.n, column_parts), 16) * 16;
  t.row_count = CeilDiv(s.m, t.rows);
  t.column_count = CeilDiv(s.n, t.columns);
  return t;
}

void AddBiasAndClamp(float* z, int64_t rows, int64_t columns, int64_t stride, const float* bias,
                     bool relu) {
  for (int64_t i = 0; i < rows; ++i, z += stride) {
    if (bias != nullptr) {
      for (int64_t j = 0; j < columns; ++j) z[j] += bias[j];
    }
    if (relu) {
      for (int64_t j = 0; j < columns; ++j) z[j] = z[j] < 0.0f ? 0.0f : z[j];  // NaN stays
    }
  }
}

// Stacks of matrices go to the next provider.
bool AreMatrices(const KernelCall& call) {
  return call.inputs[0].rank == 2 && call.inputs[1].rank == 2 && call.outputs[0].rank == 2;
}

bool Supports(const KernelCall& call) {
  if (!AreMatrices(call)) return false;
  const ProductShape s = ShapeOf(call);
  return s.m > 0 && s.n > 0 && s.k > 0 && (IsForced() || IsFastest(s));
}

void Run(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const ProductShape s = ShapeOf(call);
  const Tiles t = TilesOf(s);
  const float* x = call.inputs[0].as<float>();
  const float* y = call.inputs[1].as<float>();
  const float* bias = call.inputs[2].as<float>();
  const int64_t x_stride = call.inputs[0].dims[1], y_stride = call.inputs[1].dims[1];
  std::atomic<int> failed{dnnl_success};
  ParallelFor(
      call.threads, t.row_count * t.column_count, 1, s.m * s.n * s.k,
      [&](int64_t begin, int64_t end) {
        const OneThread one_thread;
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t i = tile / t.column_count * t.rows, j = tile % t.column_count * t.columns;
          const int64_t rows = std::min(t.rows, s.m - i), columns = std::min(t.columns, s.n - j);
          float* z = call.outputs[0].as<float>() + i * s.n + j;
          const dnnl_status_t status = dnnl_sgemm(
              a.transpose_x ? 'T' : 'N', a.transpose_y ? 'T' : 'N', rows, columns, s.k, 1.0f,
              x + (a.transpose_x ? i : i * x_stride), x_stride,
              y + (a.transpose_y ? j * y_stride : j), y_stride, a.accumulate ? 1.0f : 0.0f, z, s.n);
          if (status != dnnl_success) failed = status;
          AddBiasAndClamp(z, rows, columns, s.n, bias == nullptr ? nullptr : bias + j, a.relu);
        }
      });
  if (failed != dnnl_success) {
    ThrowInternal(absl::StrCat("Op [matmul]: dnnl_sgemm of ", s.m, "x", s.k, " by ", s.k, "x", s.n,
                               " returned status ", failed.load(), ", expected ",
                               static_cast<int>(dnnl_success)));
  }
}

const KernelRegistrar registrar({{OpCode::kMatMul, DeviceType::kHost, DType::kFloat32, kProvider,
                                  kPriority, &Run, nullptr, &Supports}});

}  // namespace
}  // namespace tidepool::onednn
