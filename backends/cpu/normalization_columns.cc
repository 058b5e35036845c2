#include "tidepool/backends/cpu/normalization_columns.h"

#include <cmath>

#include "tidepool/backends/cpu/nn_loops.h"

namespace tidepool::cpu {
namespace {

// body(group, its first channel, the channel behind its last)
template <typename Body>
void ForEachGroup(const Columns& c, int64_t width, Body body) {
  for (int64_t group = 0; group < c.channels / width; ++group)
    body(group, group * width, (group + 1) * width);
}

// So many rows, where there are many more, are enough to come near a mean.
constexpr int64_t kSampleRows = 64;
constexpr int64_t kRowsWorthASample = 16 * kSampleRows;
// The square of what is left of the mean, in variances, up to which sums about a center are exact enough.
constexpr double kFarFromMean = 4;

// Of a group, by totals about a center: what is left of the mean, and the variance, which rounding may leave below 0.
struct Moments {
  Moments(const double* totals, int64_t first, int64_t end, double count) {
    double sum = 0, squares = 0;
    for (int64_t i = first; i < end; ++i) sum += totals[2 * i], squares += totals[2 * i + 1];
    rest = sum / count;
    spread = squares / count - rest * rest;
  }
  double rest, spread;
};

// The totals become sums of all rows, or of some that lie evenly between the first and the last. Returns of how many.
double SumSomeRows(const KernelCall& call, const Columns& c, const ColumnScratch& scratch,
                   const float* x) {
  const int64_t rows = c.count / c.channels;
  if (rows < kRowsWorthASample) {
    SumColumns(call, c, scratch, [&](int64_t begin, int64_t n, double* sums, double*) {
      NetworkLoops().column_sums(x + begin, n, c.wide, sums);
    });
    return c.rows();
  }
  for (int64_t i = 0; i < c.channels; ++i) scratch.totals[2 * i] = 0;
  for (int64_t sample = 0; sample < kSampleRows; ++sample) {
    const float* const row = x + sample * (rows / kSampleRows) * c.channels;
    for (int64_t i = 0; i < c.channels; ++i) scratch.totals[2 * i] += row[i];
  }
  return kSampleRows;
}

}  // namespace

void NormalizeGroups(const KernelCall& call, const Columns& c, int64_t width,
                     const ColumnScratch& scratch, const float* x, const float* scale,
                     const float* shift, double epsilon, float* z,
                     GroupStatistics<float> statistics) {
  const NnLoops& loops = NetworkLoops();
  const double count = c.rows() * static_cast<double>(width);
  const double* const totals = scratch.totals;
  float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2];
  // Near the mean; the pass about it finds how near.
  const double summed = SumSomeRows(call, c, scratch, x) * static_cast<double>(width);
  ForEachGroup(c, width, [&](int64_t, int64_t first, int64_t end) {
    double sum = 0;
    for (int64_t i = first; i < end; ++i) sum += totals[2 * i];
    std::fill(center + first, center + end, static_cast<float>(sum / summed));
  });
  const auto sum_about_center = [&] {
    Spread(c, center);
    SumColumns(call, c, scratch, [&](int64_t begin, int64_t n, double* sums, double* squares) {
      loops.column_moments(x + begin, center, n, c.wide, sums, squares);
    });
  };
  sum_about_center();
  if (summed < count) {
    bool is_far = false;
    ForEachGroup(c, width, [&](int64_t, int64_t first, int64_t end) {
      const Moments m(totals, first, end, count);
      if (!(m.rest * m.rest > kFarFromMean * m.spread)) return;
      is_far = true;
      std::fill(center + first, center + end, static_cast<float>(center[first] + m.rest));
    });
    if (is_far) sum_about_center();
  }
  ForEachGroup(c, width, [&](int64_t group, int64_t first, int64_t end) {
    const Moments m(totals, first, end, count);
    const double inverse = 1 / std::sqrt((m.spread < 0 ? 0 : m.spread) + epsilon);
    statistics.means[group] = static_cast<float>(center[first] + m.rest);
    statistics.inverses[group] = static_cast<float>(inverse);
    for (int64_t i = first; i < end; ++i) {
      factor[i] = static_cast<float>(inverse * scale[i]);
      offset[i] = static_cast<float>(shift[i] - m.rest * inverse * scale[i]);
    }
  });
  for (float* tile : {factor, offset}) Spread(c, tile);
  ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t n) {
    loops.column_affine(x + begin, center, factor, offset, n, c.wide, z + begin);
  });
}

void NormalizeGroupsGrad(const KernelCall& call, const Columns& c, int64_t width,
                         const ColumnScratch& scratch, const float* x, const float* scale,
                         GroupStatistics<const float> statistics, const float* dz, float* dx) {
  const NnLoops& loops = NetworkLoops();
  const double count = c.rows() * static_cast<double>(width);
  double* const totals = scratch.totals;
  float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2],
        *slope = scratch.tiles[3];
  ForEachGroup(c, width, [&](int64_t group, int64_t first, int64_t end) {
    std::fill(center + first, center + end, statistics.means[group]);
  });
  Spread(c, center);
  SumColumns(call, c, scratch, [&](int64_t begin, int64_t n, double* sums, double* products) {
    loops.column_products(x + begin, center, dz + begin, n, c.wide, sums, products);
  });
  ForEachGroup(c, width, [&](int64_t group, int64_t first, int64_t end) {
    const double inverse = statistics.inverses[group];
    double sum = 0, products = 0;
    for (int64_t i = first; i < end; ++i) {
      totals[2 * i + 1] *= inverse;
      sum += totals[2 * i] * scale[i];
      products += totals[2 * i + 1] * scale[i];
    }
    for (int64_t i = first; i < end; ++i) {
      factor[i] = static_cast<float>(inverse * scale[i]);
      offset[i] = static_cast<float>(inverse * sum / count);
      slope[i] = static_cast<float>(inverse * inverse * products / count);
    }
  });
  for (float* tile : {factor, offset, slope}) Spread(c, tile);
  ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t n) {
    loops.column_grad(x + begin, center, dz + begin, factor, offset, slope, n, c.wide, dx + begin);
  });
}

}  // namespace tidepool::cpu
