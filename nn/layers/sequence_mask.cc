#include "tidepool/nn/layers/sequence_mask.h"

#include "absl/container/inlined_vector.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {

bool IsMaskOf(const NDArray& mask, const NDArray& x) {
  return mask.is_defined() && x.rank() >= 2 && x.dim(0) == mask.dim(0) && x.dim(1) == mask.dim(1);
}

NDArray MaskOfInput(const LayerContext& context, size_t i) {
  if (!context.masks.empty()) return context.masks[i];
  return i == 0 ? context.mask : NDArray();
}

NDArray MaskOfRank(const NDArray& mask, int rank) {
  absl::InlinedVector<int64_t, kMaxRank> dims(static_cast<size_t>(rank), 1);
  dims[0] = mask.dim(0);
  dims[1] = mask.dim(1);
  return Cast(mask, DType::kBool).Reshape(Shape(absl::MakeConstSpan(dims)));
}

NDArray WithoutMasked(const NDArray& mask, const NDArray& x) {
  return IsMaskOf(mask, x) ? Where(MaskOfRank(mask, x.rank()), x, 0) : x;
}

}  // namespace tidepool::nn
