// Addresses of another allocator as offsets in one range.
#ifndef TIDEPOOL_MEMORY_PROFILE_SEGMENT_LAYOUT_H_
#define TIDEPOOL_MEMORY_PROFILE_SEGMENT_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidepool {

// Where addresses lie when all segments stand one behind the other.
class SegmentLayout {
 public:
  struct Segment {
    int64_t address, size;
  };

  explicit SegmentLayout(std::vector<Segment> segments) {
    std::sort(segments.begin(), segments.end(),
              [](const Segment& a, const Segment& b) { return a.address < b.address; });
    for (const Segment& segment : segments) {
      if (!begins_.empty() && segment.address <= end_) {
        total_ += std::max<int64_t>(0, segment.address + segment.size - end_);
        end_ = std::max(end_, segment.address + segment.size);
        continue;
      }
      begins_.push_back(segment.address);
      offsets_.push_back(total_);
      total_ += segment.size;
      end_ = segment.address + segment.size;
    }
  }
  int64_t OffsetOf(int64_t address) const {
    const auto above = std::upper_bound(begins_.begin(), begins_.end(), address);
    if (above == begins_.begin()) return -1;
    const auto i = static_cast<size_t>(above - begins_.begin()) - 1;
    return offsets_[i] + (address - begins_[i]);
  }
  int64_t total() const { return total_; }

 private:
  std::vector<int64_t> begins_, offsets_;
  int64_t end_ = 0, total_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_SEGMENT_LAYOUT_H_
