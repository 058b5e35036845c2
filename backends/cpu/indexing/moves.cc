// Reversed axes and triangles, row by row.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kTaskElements = 1 << 15;

// Neighbouring axes that are both reversed, or both not, are one.
struct FlipPlan {
  int rank = 0;
  int64_t dims[kMaxRank + 1];
  bool reversed[kMaxRank + 1];

  FlipPlan(const TensorRef& x, uint32_t axes) {
    for (int i = 0; i < x.rank; ++i) {
      if (x.dims[i] == 1) continue;
      const bool is_reversed = (axes >> i & 1) != 0;
      if (rank > 0 && reversed[rank - 1] == is_reversed) {
        dims[rank - 1] *= x.dims[i];
      } else {
        dims[rank] = x.dims[i];
        reversed[rank++] = is_reversed;
      }
    }
    if (rank == 0) dims[rank] = 1, reversed[rank++] = false;
  }
  // Where the row of this index (along all axes but the last) comes from.
  int64_t SourceRow(int64_t row) const {
    int64_t source = 0, stride = 1;
    for (int i = rank - 2; i >= 0; --i) {
      const int64_t index = row % dims[i];
      row /= dims[i];
      source += (reversed[i] ? dims[i] - 1 - index : index) * stride;
      stride *= dims[i];
    }
    return source;
  }
};

template <typename Bits>
void Flip(const KernelCall& call) {
  const FlipPlan plan(call.inputs[0], call.attrs<FlipAttributes>().axes);
  const int64_t n = plan.dims[plan.rank - 1];
  const int64_t elements = call.inputs[0].NumElements();
  const Bits* x = call.inputs[0].as<Bits>();
  Bits* z = call.outputs[0].as<Bits>();
  const bool reversed = plan.reversed[plan.rank - 1];
  ParallelFor(call.threads, elements / n, std::max<int64_t>(1, kTaskElements / n), elements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const Bits* from = x + plan.SourceRow(row) * n;
                  if (reversed) {
                    std::reverse_copy(from, from + n, z + row * n);
                  } else {
                    std::memcpy(z + row * n, from, n * sizeof(Bits));
                  }
                }
              });
}

template <typename Bits>
void Triangle(const KernelCall& call) {
  const auto& a = call.attrs<TriangleAttributes>();
  const TensorRef& x = call.inputs[0];
  const int64_t rows = x.dims[x.rank - 2], n = x.dims[x.rank - 1];
  const int64_t elements = x.NumElements();
  const Bits* from = x.as<Bits>();
  Bits* to = call.outputs[0].as<Bits>();
  ParallelFor(call.threads, elements / n, std::max<int64_t>(1, kTaskElements / n), elements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  // Columns [first, last) stay. Diagonals may be as far out as i64 goes.
                  const int64_t diagonal = std::clamp(a.diagonal, -rows - 1, n + 1) + row % rows;
                  const int64_t first = a.upper ? std::clamp<int64_t>(diagonal, 0, n) : 0;
                  const int64_t last = a.upper ? n : std::clamp<int64_t>(diagonal + 1, 0, n);
                  Bits* line = to + row * n;
                  if (line != from + row * n) {
                    std::memcpy(line + first, from + row * n + first,
                                (last - first) * sizeof(Bits));
                  }
                  std::fill(line, line + first, Bits{0});
                  std::fill(line + last, line + n, Bits{0});
                }
              });
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype, [&](auto bits) {
      KernelRegistry::Global().Add(
          {OpCode::kFlip, DeviceType::kHost, dtype, "cpu", 10, &Flip<decltype(bits)>});
      KernelRegistry::Global().Add(
          {OpCode::kTriangle, DeviceType::kHost, dtype, "cpu", 10, &Triangle<decltype(bits)>});
    });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
