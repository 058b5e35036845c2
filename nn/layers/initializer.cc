#include "tidepool/nn/layers/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool::nn {
namespace {

constexpr const char* kKinds[] = {"auto",          "constant",         "uniform",
                                  "normal",        "truncated_normal", "glorot_uniform",
                                  "glorot_normal", "he_uniform",       "he_normal",
                                  "lecun_uniform", "lecun_normal",     "orthogonal"};

[[noreturn]] void Refuse(const ParameterSpec& spec, const std::string& why) {
  ThrowInvalidArgument(absl::StrCat(
      "parameter [", spec.name, "] ", spec.shape.ToString(), ": initializer ",
      kKinds[static_cast<int>(spec.initializer.kind)], " ", spec.initializer.value, ": ", why));
}

// Normal numbers beyond two deviations are drawn again by the tail's mirror image: the inverse of the normal distribution at
// uniform numbers between its values at -2 and 2.
NDArray TruncatedNormal(const Shape& shape, double deviation, uint64_t seed, uint64_t stream) {
  // erf(2 / sqrt 2); Giles 2010 has erfinv by polynomials, which Newton steps on erf make exact here.
  constexpr double kInside = 0.9544997361036416;
  const NDArray u =
      RandomUniform(shape, -kInside, kInside, DType::kFloat64, seed, stream, Place::Heap());
  NDArray x = u * 0.886226925452758;
  for (int i = 0; i < 12; ++i) {
    x -= (Erf(x) - u) * 0.886226925452758 * Exp(Square(x));
  }
  return x * (std::sqrt(2.0) * deviation);
}

// The deviation's share of variance that a kind wants: 1 / what it divides by.
double Deviation(const ParameterSpec& spec) {
  const double in = static_cast<double>(spec.fan_in), out = static_cast<double>(spec.fan_out);
  switch (spec.initializer.kind) {
    case InitializerKind::kGlorotUniform:
    case InitializerKind::kGlorotNormal:
      return std::sqrt(2 / (in + out));
    case InitializerKind::kHeUniform:
    case InitializerKind::kHeNormal:
      return std::sqrt(2 / in);
    default:
      return std::sqrt(1 / in);
  }
}

// How far a goes along b. By eight sums, so that they do not wait for each other; the same everywhere.
double Along(const double* a, const double* b, int64_t count) {
  double sums[8] = {};
  int64_t c = 0;
  for (; c + 8 <= count; c += 8) {
    for (int64_t k = 0; k < 8; ++k) sums[k] += a[c + k] * b[c + k];
  }
  for (; c < count; ++c) sums[0] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Takes from `row` what lies along `count` (4 at most) orthonormal rows from `done` on.
void TakeAway(const double* done, int64_t count, int64_t columns, double* row) {
  double along[4] = {};
  const double* of[4];
  for (int64_t i = 0; i < 4; ++i) {
    of[i] = done + (i < count ? i : 0) * columns;
    if (i < count) along[i] = Along(row, of[i], columns);
  }
  for (int64_t c = 0; c < columns; ++c) {
    row[c] -=
        (along[0] * of[0][c] + along[1] * of[1][c]) + (along[2] * of[2][c] + along[3] * of[3][c]);
  }
}

using Pair [[gnu::vector_size(16)]] = double;  // two numbers, added and multiplied at once
Pair PairAt(const double* from) {
  Pair pair;
  std::memcpy(&pair, from, sizeof(pair));
  return pair;
}

// The same of four orthonormal rows from four rows, each element of which is read for all four of the others.
void TakeAwayFour(const double* done, int64_t columns, double* rows) {
  const int64_t paired = columns / 2 * 2;
  Pair along[4][4] = {};
  for (int64_t c = 0; c < paired; c += 2) {
    const Pair of[4] = {PairAt(done + c), PairAt(done + columns + c),
                        PairAt(done + 2 * columns + c), PairAt(done + 3 * columns + c)};
    for (int r = 0; r < 4; ++r) {
      const Pair row = PairAt(rows + r * columns + c);
      for (int i = 0; i < 4; ++i) along[r][i] += row * of[i];
    }
  }
  for (int r = 0; r < 4; ++r) {
    for (int i = 0; i < 4; ++i) {
      double sum = along[r][i][0] + along[r][i][1];
      if (paired < columns) sum += rows[r * columns + paired] * done[i * columns + paired];
      along[r][i] = Pair{sum, sum};
    }
  }
  for (int64_t c = 0; c < paired; c += 2) {
    const Pair of[4] = {PairAt(done + c), PairAt(done + columns + c),
                        PairAt(done + 2 * columns + c), PairAt(done + 3 * columns + c)};
    for (int r = 0; r < 4; ++r) {
      const Pair row =
          PairAt(rows + r * columns + c) - ((along[r][0] * of[0] + along[r][1] * of[1]) +
                                            (along[r][2] * of[2] + along[r][3] * of[3]));
      std::memcpy(rows + r * columns + c, &row, sizeof(row));
    }
  }
  if (paired == columns) return;
  for (int r = 0; r < 4; ++r) {
    for (int i = 0; i < 4; ++i)
      rows[r * columns + paired] -= along[r][i][0] * done[i * columns + paired];
  }
}

// Gram and Schmidt's process, a block of rows at a time: those before it are read once for all of the block. Twice where a row
// loses so much of its length that rounding would be seen, as the last ones of a square do. `q`: rows * columns of
// independent rows, in place.
void MakeOrthonormal(int64_t rows, int64_t columns, double* q) {
  constexpr int64_t kBlock = 32;  // a multiple of four
  constexpr double kLeft = 0.25;  // of the length, at which once is enough
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    const int64_t end = std::min(rows, begin + kBlock);
    for (bool again = true; again;) {
      again = false;
      double lengths[kBlock];
      for (int64_t r = begin; r < end; ++r)
        lengths[r - begin] = std::sqrt(Along(q + r * columns, q + r * columns, columns));
      for (int64_t done = 0; done < begin; done += 4) {
        int64_t r = begin;
        for (; r + 4 <= end; r += 4) TakeAwayFour(q + done * columns, columns, q + r * columns);
        for (; r < end; ++r) TakeAway(q + done * columns, 4, columns, q + r * columns);
      }
      for (int64_t r = begin; r < end; ++r) {
        double* const row = q + r * columns;
        for (int64_t done = begin; done < r; done += 4)
          TakeAway(q + done * columns, std::min<int64_t>(4, r - done), columns, row);
        const double length = std::sqrt(Along(row, row, columns));
        again = again || length < kLeft * lengths[r - begin];
        for (int64_t c = 0; c < columns; ++c) row[c] /= length;
      }
    }
  }
}

// Uniform among orthogonal matrices, as the distribution of normal rows knows no direction. Not by //ndarray/linalg: every
// network would link Eigen for it.
NDArray Orthogonal(const ParameterSpec& spec, DType dtype, uint64_t seed, uint64_t stream) {
  if (spec.shape.rank() < 2 || spec.shape.NumElements() == 0)
    Refuse(spec, "expected a rank of 2 or more, and elements");
  const int64_t first = spec.shape[0], rest = spec.shape.NumElements() / first;
  const int64_t rows = std::min(first, rest), columns = std::max(first, rest);
  std::vector<double> q =
      RandomNormal({rows, columns}, 0, 1, DType::kFloat64, seed, stream, Place::Heap())
          .ToVector<double>();
  MakeOrthonormal(rows, columns, q.data());
  for (double& value : q) value *= spec.initializer.value;
  const NDArray matrix = FromValues(q, {rows, columns}, Place::Heap());
  return Cast(first <= rest ? matrix : matrix.Transpose(), dtype).Reshape(spec.shape);
}

NDArray DrawRuns(const ParameterSpec& spec, DType dtype, uint64_t seed, uint64_t stream) {
  const auto runs = static_cast<int64_t>(spec.of_runs.size());
  if (spec.shape.rank() < 1 || spec.shape[0] % runs != 0) {
    Refuse(spec, absl::StrCat("expected a first axis of ", runs, " equal runs"));
  }
  std::vector<int64_t> dims(spec.shape.span().begin(), spec.shape.span().end());
  dims[0] /= runs;
  NDArray all = Empty(spec.shape, dtype, Place::Heap());
  ParameterSpec run = spec;
  run.shape = Shape(absl::MakeConstSpan(dims));
  run.of_runs.clear();
  for (int64_t i = 0; i < runs; ++i) {
    run.initializer = spec.of_runs[static_cast<size_t>(i)];
    NDArray part = all.Slice(0, i * dims[0], (i + 1) * dims[0]);
    // Parameters' own streams are small numbers.
    CopyInto(DrawInitial(run, dtype, seed, stream + (static_cast<uint64_t>(i + 1) << 40)), part);
  }
  return all;
}

}  // namespace

void VisitInitializer(FieldVisitor& visitor, const std::string& name, Initializer& initializer) {
  visitor.Choice(name.c_str(), initializer.kind, kKinds);
  visitor.Field((name + "_value").c_str(), initializer.value);
}

NDArray DrawInitial(const ParameterSpec& spec, DType dtype, uint64_t seed, uint64_t stream) {
  if (!spec.of_runs.empty()) return DrawRuns(spec, dtype, seed, stream);
  const double value = spec.initializer.value;
  const Place heap = Place::Heap();
  if (!std::isfinite(value)) Refuse(spec, "expected a finite value");
  if (spec.fan_in < 1 || spec.fan_out < 1) {
    Refuse(spec, absl::StrCat("fan in ", spec.fan_in, " and out ", spec.fan_out,
                              ", expected at least 1"));
  }
  if (spec.initializer.kind != InitializerKind::kConstant && value < 0)
    Refuse(spec, "expected a value from 0");
  const auto uniform = [&](double bound) {
    return bound == 0 ? Zeros(spec.shape, dtype, heap)
                      : RandomUniform(spec.shape, -bound, bound, dtype, seed, stream, heap);
  };
  const auto normal = [&](double deviation) {
    return RandomNormal(spec.shape, 0, deviation, dtype, seed, stream, heap);
  };
  switch (spec.initializer.kind) {
    case InitializerKind::kAuto:
      Refuse(spec, "expected one that the layer has chosen");
    case InitializerKind::kConstant:
      return Full(spec.shape, value, dtype, heap);
    case InitializerKind::kUniform:
      return uniform(value);
    case InitializerKind::kNormal:
      return normal(value);
    case InitializerKind::kTruncatedNormal:
      return Cast(TruncatedNormal(spec.shape, value, seed, stream), dtype);
    case InitializerKind::kGlorotUniform:
    case InitializerKind::kHeUniform:
    case InitializerKind::kLecunUniform:
      return uniform(value * std::sqrt(3.0) * Deviation(spec));
    case InitializerKind::kGlorotNormal:
    case InitializerKind::kHeNormal:
    case InitializerKind::kLecunNormal:
      return normal(value * Deviation(spec));
    case InitializerKind::kOrthogonal:
      return Orthogonal(spec, dtype, seed, stream);
  }
  Refuse(spec, "unknown");
}

}  // namespace tidepool::nn
