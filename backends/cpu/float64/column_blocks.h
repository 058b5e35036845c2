// Sums over the rows of f64 arrays [rows, channels], as normalisation takes them: of short runs in double, added up in long
// double.
//
// Not the algorithm of f32 (normalization_columns.h), which adds up floats in double around a first estimate of the mean and
// corrects it afterwards: long double has no vectors, so that sums of runs cost less, and with the mean exact to begin with
// nothing is left to be corrected. Channels are cut into blocks, not rows into pieces: no scratch.
#ifndef TIDEPOOL_BACKENDS_CPU_FLOAT64_COLUMN_BLOCKS_H_
#define TIDEPOOL_BACKENDS_CPU_FLOAT64_COLUMN_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu::float64 {

using Sum = long double;

inline const double* In(const KernelCall& call, int i) { return call.inputs[i].as<double>(); }
inline double* Out(const KernelCall& call, int o) { return call.outputs[o].as<double>(); }

struct Rows {
  int64_t rows, channels;
  Rows(int64_t its_rows, int64_t its_channels) : rows(its_rows), channels(its_channels) {}
  explicit Rows(const TensorRef& x) : rows(0), channels(x.dims[x.rank - 1]) {
    if (channels > 0) rows = x.NumElements() / channels;
  }
};

// Neighbouring channels are worked on together, so that rows are read in whole cache lines. Where a row has few, several rows
// may be one after the other (`joins`): a lane is the place of an element in those.
inline constexpr int64_t kLanes = 32;
// So many elements of a lane are added in double before their sum goes to the long one.
inline constexpr int64_t kRun = 16;

class Block {
 public:
  Block(const Rows& g, int64_t first, int64_t width, bool joins) : first(first), width(width) {
    elements_ = g.rows * g.channels;
    lanes = joins && width == g.channels ? std::max(width, kLanes / width * width) : width;
    step_ = width == g.channels ? lanes : g.channels;
  }
  // visit(number of the first element, number of elements) for each piece of `lanes` elements; the last
  // may be shorter.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int64_t at = first; at < elements_; at += step_) {
      visit(at, std::min(lanes, elements_ - at));
    }
  }
  // totals[channel of the block] = sum of term(element, lane).
  template <typename Term>
  void AddUp(Sum* totals, Term term) const {
    Sum sums[kLanes] = {};
    double partial[kLanes] = {};
    int64_t run = 0;
    const auto flush = [&] {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        sums[lane] += partial[lane];
        partial[lane] = 0;
      }
      run = 0;
    };
    ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) partial[lane] += term(at + lane, lane);
      if (++run == kRun) flush();
    });
    flush();
    for (int64_t c = 0; c < width; ++c) {
      totals[c] = 0;
      for (int64_t lane = c; lane < lanes; lane += width) totals[c] += sums[lane];
    }
  }
  // Of values by channel.
  template <typename T>
  void ToLanes(const T* values, double* of_lanes) const {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      of_lanes[lane] = static_cast<double>(values[lane % width]);
    }
  }

  int64_t first, width, lanes;

 private:
  int64_t elements_, step_;
};

template <typename Body>
void ForEachBlock(const KernelCall& call, const Rows& g, Body body, bool joins = true) {
  const int64_t blocks = (g.channels + kLanes - 1) / kLanes;
  ParallelFor(call.threads, blocks, 1, g.rows * g.channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(Block(g, block * kLanes, std::min(kLanes, g.channels - block * kLanes), joins));
    }
  });
}

}  // namespace tidepool::cpu::float64

#endif  // TIDEPOOL_BACKENDS_CPU_FLOAT64_COLUMN_BLOCKS_H_
