#include "tidepool/backends/onednn/choice.h"

#include <cstring>

#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::onednn {
namespace {

constexpr int64_t kLeastVectorWork = 1 << 12;
constexpr int64_t kMostVectorWork = 1 << 20;

}  // namespace

bool IsForced() {
  const char* forced = ScopedProvider::Current();
  return forced != nullptr && std::strcmp(forced, kProvider) == 0;
}

bool IsFastest(const ProductShape& s) {
  // One row by a matrix that fits into the cache, and one column by one row.
  if (s.m == 1 && s.k > 1) return s.n * s.k >= kLeastVectorWork && s.n * s.k <= kMostVectorWork;
  if (s.k == 1) return s.m * s.n >= kLeastVectorWork;
  // Gradients of layers' inputs: nothing is transposed, so nothing is packed. Rows of y a multiple of
  // 1 KiB apart fall into few sets of the cache, and packing wins again.
  return !s.transpose_x && !s.transpose_y && s.m >= 8 && s.m <= 512 && s.n >= 512 && s.k >= 256 &&
         s.n % 256 != 0;
}

bool IsFastest(const ConvolutionShape& s) {
  // First layers of large colour images: three channels fill few lanes of a vector of channels. Our
  // threads share a batch: a single image goes to kernels that cut it.
  if (s.groups != 1 || s.channels != 3 || s.in_width < 96 || s.batch < 4) return false;
  if (s.kind == ConvolutionKind::kForward) return s.kernel_height == 3 && s.kernel_width == 3;
  return s.kind == ConvolutionKind::kGradInput && s.kernel_height >= 3 && s.kernel_width >= 3 &&
         s.stride_height == 2 && s.stride_width == 2;
}

}  // namespace tidepool::onednn
