// Arrays [rows, channels] as normalisation over rows takes them: work in pieces, sums of each channel. Pieces are cut
// by the shape alone, and their sums added in their order: the same bits for any number of threads.
#ifndef TIDEPOOL_BACKENDS_CPU_NORMALIZATION_COLUMNS_H_
#define TIDEPOOL_BACKENDS_CPU_NORMALIZATION_COLUMNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {

constexpr int64_t kMostPieces = 32;
constexpr int64_t kLeastPiece = 1 << 14;  // elements
constexpr int64_t kMostCopies = 32;       // of few channels, in a row of loops

// An array of [rows, channels] as rows of `wide` floats: of few channels several rows are one, so
// that loops are long.
struct Columns {
  int64_t count, channels, copies, wide, piece, pieces;

  explicit Columns(const TensorRef& x) : Columns(x.NumElements(), x.dims[x.rank - 1]) {}
  // No more copies than there are rows, whose sums each have one of their own then: the same bits, without memory for none.
  Columns(int64_t elements, int64_t last)
      : Columns(elements, last, last < 1 ? 1 : std::max<int64_t>(elements / last, 1)) {}
  Columns(int64_t elements, int64_t last, int64_t most_copies) : count(elements), channels(last) {
    copies = channels < kMostCopies ? std::min(kMostCopies, most_copies) : 1;
    wide = copies * channels;
    const int64_t rows = (count + wide - 1) / wide;
    const int64_t rows_of_piece =
        std::max((kLeastPiece + wide - 1) / wide, (rows + kMostPieces - 1) / kMostPieces);
    piece = rows_of_piece * wide;
    pieces = (count + piece - 1) / piece;
  }
  double rows() const { return static_cast<double>(count) / static_cast<double>(channels); }
};

// Scratch: two sums per column and piece, two per channel, then up to four floats per column.
struct ColumnScratch {
  double *sums, *totals;
  float* tiles[4];

  ColumnScratch(const Columns& c, void* scratch) {
    sums = static_cast<double*>(scratch);
    totals = sums + 2 * c.wide * c.pieces;
    float* rest = reinterpret_cast<float*>(totals + 2 * c.channels);
    for (float*& tile : tiles) tile = rest, rest += c.wide;
  }
  static size_t Bytes(const Columns& c) {
    return static_cast<size_t>(2 * c.wide * c.pieces + 2 * c.channels) * sizeof(double) +
           static_cast<size_t>(4 * c.wide) * sizeof(float);
  }
};

// body(begin, count) for each piece of the array.
template <typename Body>
void ForEachPiece(const KernelCall& call, const Columns& c, Body body) {
  ParallelFor(call.threads, c.pieces, 1, 4 * c.count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      body(i, i * c.piece, std::min(c.piece, c.count - i * c.piece));
    }
  });
}

// Runs loop(begin, count, sums, sums + wide) for each piece: two totals of each channel, beside each other.
template <typename Loop>
void SumColumns(const KernelCall& call, const Columns& c, const ColumnScratch& scratch, Loop loop) {
  std::fill_n(scratch.sums, 2 * c.wide * c.pieces, 0.0);
  ForEachPiece(call, c, [&](int64_t index, int64_t begin, int64_t count) {
    double* sums = scratch.sums + 2 * c.wide * index;
    loop(begin, count, sums, sums + c.wide);
  });
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    double first = 0, second = 0;
    for (int64_t piece = 0; piece < c.pieces; ++piece) {
      const double* sums = scratch.sums + 2 * c.wide * piece;
      for (int64_t copy = 0; copy < c.copies; ++copy) {
        first += sums[copy * c.channels + channel];
        second += sums[c.wide + copy * c.channels + channel];
      }
    }
    scratch.totals[2 * channel] = first, scratch.totals[2 * channel + 1] = second;
  }
}

// The first channels of a tile, repeated over its width.
inline void Spread(const Columns& c, float* tile) {
  for (int64_t copy = 1; copy < c.copies; ++copy) {
    std::copy_n(tile, c.channels, tile + copy * c.channels);
  }
}

// Of each group of neighbouring channels.
template <typename Float>
struct GroupStatistics {
  Float *means, *inverses;  // of deviations
};

// z = (x - mean) / deviation * scale + shift, by the mean and the deviation of each `width` channels, which it leaves in
// `statistics`. Scale and shift: one a channel.
void NormalizeGroups(const KernelCall& call, const Columns& c, int64_t width,
                     const ColumnScratch& scratch, const float* x, const float* scale,
                     const float* shift, double epsilon, float* z,
                     GroupStatistics<float> statistics);

// The gradient dx of that. Leaves in the scratch's totals those of each channel's shift and scale.
void NormalizeGroupsGrad(const KernelCall& call, const Columns& c, int64_t width,
                         const ColumnScratch& scratch, const float* x, const float* scale,
                         GroupStatistics<const float> statistics, const float* dz, float* dx);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_NORMALIZATION_COLUMNS_H_
