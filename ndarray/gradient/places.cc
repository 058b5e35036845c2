#include "tidepool/ndarray/gradient/places.h"

#include <algorithm>
#include <cstdlib>

#include "tidepool/ndarray/gradient/taped_view.h"

namespace tidepool {

Places::Places(const TapedView& view) {
  Set(view.first, view.dtype, view.rank, view.dims(), view.strides());
}

Places::Places(const NDArray& array) {
  Set(FirstElementOf(array), array.dtype(), array.rank(), array.shape().dims(), array.strides());
}

void Places::SetWithGaps(int64_t first, int64_t width, int rank, const int64_t* dims,
                         const int64_t* strides) {
  begin_ = end_ = first * width;
  int axes[kMaxRank];  // that have more than one place, the smallest step first
  int count = 0;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 0) {
      begin_ = end_;
      return;
    }
    if (dims[i] == 1 || strides[i] == 0) continue;
    if (strides[i] < 0) begin_ += (dims[i] - 1) * strides[i] * width;
    int at = count++;
    for (; at > 0 && std::abs(strides[axes[at - 1]]) > std::abs(strides[i]); --at)
      axes[at] = axes[at - 1];
    axes[at] = i;
  }
  int64_t reach = width;  // of the axes so far
  int64_t next = 0;       // the step by which the last axis with gaps would go on
  bool is_regular = true;
  for (int a = 0; a < count; ++a) {
    const int64_t dim = dims[axes[a]], step = std::abs(strides[axes[a]]) * width;
    // What does not come again at the same place of each is no gap.
    const auto left =
        static_cast<int>(std::remove_if(gaps_, gaps_ + gap_count_,
                                        [step](const Gap& gap) { return step % gap.pitch != 0; }) -
                         gaps_);
    is_regular = is_regular && left == gap_count_;
    gap_count_ = left;
    if (step > reach && step != next && gap_count_ < kMost) gaps_[gap_count_++] = {step, reach};
    if (step > reach) next = step * dim;
    reach += (dim - 1) * step;
  }
  end_ = begin_ + reach;
  if (is_regular) return;
  int64_t run = width;
  int used = 0;
  for (int a = 0; a < count; ++a) {
    const int64_t most = dims[axes[a]] - 1, step = std::abs(strides[axes[a]]) * width;
    if (used == 0 && step <= run) {
      run += most * step;
    } else if (used == kMost) {
      return;  // the gaps that are left have to do
    } else {
      axes_[used++] = {step, most};
    }
  }
  std::fill(axes_ + used, axes_ + kMost, Axis{0, 0});
  run_ = run;
}

// Of gaps: the runs, and where they come again, which may be more places than the view has.
void Places::AddSteps(StepReach& reach) const {
  if (run_ > 0) {
    reach.Add(1, run_ - 1);
    for (const Axis& axis : axes_) reach.Add(axis.step, axis.most);
    return;
  }
  int64_t run = gap_count_ > 0 ? gaps_[0].run : end_ - begin_;
  reach.Add(1, run - 1);
  for (int i = 0; i < gap_count_; ++i) {
    const int64_t next = i + 1 < gap_count_ ? gaps_[i + 1].run : end_ - begin_;
    reach.Add(gaps_[i].pitch, (next - gaps_[i].run + gaps_[i].pitch - 1) / gaps_[i].pitch);
  }
}

bool Places::StepsMeet(const Places& other) const {
  StepReach reach;
  AddSteps(reach);
  other.AddSteps(reach);
  return reach.Reaches(other.end_ - 1 - begin_);
}

int64_t Places::RunOf(int64_t pitch) const {
  for (int i = 0; i < gap_count_; ++i) {
    if (gaps_[i].pitch % pitch == 0 && gaps_[i].run <= pitch) return gaps_[i].run;
  }
  return end_ - begin_ <= pitch ? end_ - begin_ : 0;
}

bool Places::AreInGapsOf(const Places& other) const {
  for (int i = 0; i < other.gap_count_; ++i) {
    const auto [pitch, run] = other.gaps_[i];
    const int64_t own = RunOf(pitch);
    if (own == 0) continue;
    const int64_t distance = ((begin_ - other.begin_) % pitch + pitch) % pitch;
    if (distance >= run && distance + own <= pitch) return true;
  }
  return false;
}

}  // namespace tidepool
