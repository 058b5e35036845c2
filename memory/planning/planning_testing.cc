#include "tidepool/memory/planning/planning_testing.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <tuple>

namespace tidepool {
namespace {

// Depth-first over all orders. Placing each buffer on top of all placed ones it meets loses
// nothing: the order by offset of any placement reproduces it or one below it. For the same reason
// an order in which offsets descend is never needed.
class Exhaustive {
 public:
  Exhaustive(absl::Span<const LifetimeBuffer> buffers, int64_t alignment)
      : buffers_(buffers), alignment_(alignment), end_(buffers.size(), -1) {}

  int64_t Run() {
    Extend(0, 0, 0);
    return best_;
  }

 private:
  void Extend(size_t placed, int64_t last_offset, int64_t peak) {
    if (peak >= best_) return;
    if (placed == buffers_.size()) {
      best_ = peak;
      return;
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (end_[i] >= 0) continue;
      int64_t offset = buffers_[i].size > 0 ? 0 : last_offset;
      for (size_t j = 0; j < buffers_.size(); ++j) {
        if (end_[j] >= 0 && buffers_[i].lower < buffers_[j].upper &&
            buffers_[j].lower < buffers_[i].upper && buffers_[i].size > 0) {
          offset = std::max(offset, end_[j]);
        }
      }
      if (offset < last_offset) continue;
      end_[i] = buffers_[i].size == 0
                    ? 0
                    : offset + (buffers_[i].size + alignment_ - 1) / alignment_ * alignment_;
      Extend(placed + 1, offset, std::max(peak, end_[i]));
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

std::vector<LifetimeBuffer> TightProblem(std::mt19937_64& random, int count, int64_t height) {
  constexpr int64_t kAlive = -1;
  std::vector<LifetimeBuffer> buffers;
  int64_t time = 0;
  for (int64_t freed = height; freed > 0; ++time) {
    while (freed > 0) {
      const int64_t size = std::uniform_int_distribution<int64_t>(1, freed)(random);
      buffers.push_back({time, kAlive, size});
      freed -= size;
    }
    for (LifetimeBuffer& buffer : buffers) {
      if (buffer.upper != kAlive || static_cast<int>(buffers.size()) >= count) continue;
      if (std::uniform_int_distribution<int>(0, 2)(random) > 0) continue;
      buffer.upper = time + 1;
      freed += buffer.size;
    }
    // Nobody ended by chance: then somebody has to.
    if (freed == 0 && static_cast<int>(buffers.size()) < count) {
      for (LifetimeBuffer& buffer : buffers) {
        if (buffer.upper != kAlive) continue;
        buffer.upper = time + 1;
        freed = buffer.size;
        break;
      }
    }
  }
  for (LifetimeBuffer& buffer : buffers) {
    if (buffer.upper == kAlive) buffer.upper = time;
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
    buffers.push_back({forward, forward + 1, kilobytes(random) * 256});    // scratch
    buffers.push_back({backward - 2, backward + 1, activation});           // its gradient
    buffers.push_back({backward, backward + 1, kilobytes(random) * 256});  // scratch
  }
  return buffers;
}

int64_t ExhaustiveOptimum(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  return Exhaustive(buffers, alignment).Run();
}

bool FitsInHeight(absl::Span<const LifetimeBuffer> buffers, int64_t height) {
  std::vector<std::tuple<int64_t, bool, size_t>> events;  // time, starts, buffer
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == 0) continue;
    events.emplace_back(buffers[i].lower, true, i);
    events.emplace_back(buffers[i].upper, false, i);
  }
  std::sort(events.begin(), events.end());
  // A character for each buffer: its offset, or that it is not alive.
  constexpr char kAbsent = 127;
  std::set<std::string> arrangements = {std::string(buffers.size(), kAbsent)};
  for (const auto& [time, starts, i] : events) {
    std::set<std::string> next;
    for (std::string arrangement : arrangements) {
      if (!starts) {
        arrangement[i] = kAbsent;
        next.insert(arrangement);
        continue;
      }
      for (int64_t offset = 0; offset + buffers[i].size <= height; ++offset) {
        bool is_free = true;
        for (size_t j = 0; j < buffers.size() && is_free; ++j) {
          is_free = arrangement[j] == kAbsent || arrangement[j] >= offset + buffers[i].size ||
                    offset >= arrangement[j] + buffers[j].size;
        }
        if (!is_free) continue;
        std::string extended = arrangement;
        extended[i] = static_cast<char>(offset);
        next.insert(std::move(extended));
      }
    }
    arrangements = std::move(next);
  }
  return !arrangements.empty();
}

}  // namespace tidepool
