#include "tidepool/backends/cuda/framework/strided_layout.h"

#include <algorithm>
#include <cstdlib>

#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool::cuda {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

// Whether the counts and all offsets within it are below 2^31.
bool Fits(const StridedPlan& plan) {
  if (plan.count >= kLimit) return false;
  for (int n = 0; n < plan.operands; ++n) {
    int64_t reach = 0;
    for (int i = 0; i < plan.rank; ++i) reach += (plan.dims[i] - 1) * std::abs(plan.strides[n][i]);
    if (reach >= kLimit) return false;
  }
  return true;
}

StridedLayout LayoutOf(const StridedPlan& plan) {
  StridedLayout layout;
  layout.rank = plan.rank;
  layout.count = static_cast<uint32_t>(plan.count);
  for (int axis = 0; axis < plan.rank; ++axis) {
    const int from = plan.rank - 1 - axis;
    layout.dims[axis] = FastDivisor(static_cast<uint32_t>(plan.dims[from]));
    for (int n = 0; n < plan.operands; ++n) {
      layout.strides[n][axis] = static_cast<int32_t>(plan.strides[n][from]);
    }
  }
  return layout;
}

void VisitPieces(const StridedPlan& plan, const int64_t* offsets,
                 absl::FunctionRef<void(const StridedLayout&, const int64_t*)> visit) {
  if (Fits(plan)) return visit(LayoutOf(plan), offsets);
  // Halves along the axis that reaches furthest.
  int axis = 0;
  int64_t furthest = -1;
  for (int i = 0; i < plan.rank; ++i) {
    if (plan.dims[i] < 2) continue;
    int64_t reach = plan.dims[i];
    for (int n = 0; n < plan.operands; ++n) {
      reach = std::max(reach, (plan.dims[i] - 1) * std::abs(plan.strides[n][i]));
    }
    if (reach > furthest) {
      furthest = reach;
      axis = i;
    }
  }
  const int64_t size = plan.dims[axis];
  for (int half = 0; half < 2; ++half) {
    StridedPlan piece = plan;
    piece.dims[axis] = half == 0 ? size / 2 : size - size / 2;
    piece.count = plan.count / size * piece.dims[axis];
    int64_t moved[kMaxOperands];
    for (int n = 0; n < plan.operands; ++n) {
      moved[n] = offsets[n] + (half == 0 ? 0 : size / 2 * plan.strides[n][axis]);
    }
    VisitPieces(piece, moved, visit);
  }
}

}  // namespace

StridedPlan::StridedPlan(const TensorRef& shape, absl::Span<const TensorRef* const> refs)
    : operands(static_cast<int>(refs.size())) {
  int64_t full[kMaxOperands][kMaxRank];
  for (int n = 0; n < operands; ++n) {
    BroadcastStrides(refs[n]->rank, refs[n]->dims, refs[n]->strides, shape.rank, full[n]);
  }
  for (int i = 0; i < shape.rank; ++i) {
    const int64_t size = shape.dims[i];
    count *= size;
    if (size == 1) continue;
    bool merges = rank > 0;
    for (int n = 0; merges && n < operands; ++n) merges = strides[n][rank - 1] == full[n][i] * size;
    if (merges) {
      dims[rank - 1] *= size;
    } else {
      dims[rank++] = size;
    }
    for (int n = 0; n < operands; ++n) strides[n][rank - 1] = full[n][i];
  }
}

bool StridedPlan::IsFlat() const {
  if (rank > 1) return false;
  for (int n = 0; rank == 1 && n < operands; ++n) {
    if (strides[n][0] != 0 && strides[n][0] != 1) return false;
  }
  return true;
}

void ForEachPiece(const StridedPlan& plan,
                  absl::FunctionRef<void(const StridedLayout&, const int64_t*)> visit) {
  const int64_t offsets[kMaxOperands] = {};
  VisitPieces(plan, offsets, visit);
}

}  // namespace tidepool::cuda
