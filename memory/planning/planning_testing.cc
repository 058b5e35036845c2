#include "tidepool/memory/planning/planning_testing.h"

#include <algorithm>
#include <limits>

namespace tidepool {
namespace {

// Depth-first over all orders. Placing each buffer on top of all placed ones it meets loses
// nothing: an order by offset of any placement reproduces it or one below it.
class Exhaustive {
 public:
  Exhaustive(absl::Span<const LifetimeBuffer> buffers, int64_t alignment)
      : buffers_(buffers), alignment_(alignment), end_(buffers.size(), -1) {}

  int64_t Run() {
    Extend(0, 0);
    return best_;
  }

 private:
  void Extend(size_t placed, int64_t peak) {
    if (peak >= best_) return;
    if (placed == buffers_.size()) {
      best_ = peak;
      return;
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (end_[i] >= 0) continue;
      int64_t offset = 0;
      for (size_t j = 0; j < buffers_.size(); ++j) {
        if (end_[j] >= 0 && buffers_[i].lower < buffers_[j].upper &&
            buffers_[j].lower < buffers_[i].upper && buffers_[i].size > 0) {
          offset = std::max(offset, end_[j]);
        }
      }
      end_[i] = offset + (buffers_[i].size + alignment_ - 1) / alignment_ * alignment_;
      Extend(placed + 1, std::max(peak, end_[i]));
      end_[i] = -1;
    }
  }

  const absl::Span<const LifetimeBuffer> buffers_;
  const int64_t alignment_;
  std::vector<int64_t> end_;  // -1: not placed
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::vector<LifetimeBuffer> RandomProblem(std::mt19937_64& random, int count, int64_t horizon,
                                          int64_t longest, int64_t largest) {
  std::vector<LifetimeBuffer> buffers(count);
  for (LifetimeBuffer& buffer : buffers) {
    buffer.lower = std::uniform_int_distribution<int64_t>(0, horizon - 1)(random);
    buffer.upper = buffer.lower + std::uniform_int_distribution<int64_t>(1, longest)(random);
    buffer.size = std::uniform_int_distribution<int64_t>(0, largest)(random);
  }
  return buffers;
}

std::vector<LifetimeBuffer> TrainingTrace(std::mt19937_64& random, int layers) {
  std::uniform_int_distribution<int64_t> kilobytes(1, 4096);
  std::vector<LifetimeBuffer> buffers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t forward = 2 * layer;
    const int64_t backward = 4 * int64_t{layers} - 2 * layer;
    const int64_t activation = kilobytes(random) * 1024;
    buffers.push_back({forward, backward + 2, activation});
    buffers.push_back({forward, forward + 1, kilobytes(random) * 256});       // scratch
    buffers.push_back({backward - 2, backward + 1, activation});              // its gradient
    buffers.push_back({backward, backward + 1, kilobytes(random) * 256});     // scratch
  }
  return buffers;
}

int64_t ExhaustiveOptimum(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  return Exhaustive(buffers, alignment).Run();
}

}  // namespace tidepool
