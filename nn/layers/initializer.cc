#include "tidepool/nn/layers/initializer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

// Gram and Schmidt's process on normal numbers, twice for each row, which leaves rounding alone. Uniform among orthogonal
// matrices, as the rows' distribution knows no direction. Not by //ndarray/linalg: every network would link Eigen for it.
NDArray Orthogonal(const ParameterSpec& spec, DType dtype, uint64_t seed, uint64_t stream) {
  if (spec.shape.rank() < 2 || spec.shape.NumElements() == 0)
    Refuse(spec, "expected a rank of 2 or more, and elements");
  const int64_t first = spec.shape[0], rest = spec.shape.NumElements() / first;
  const int64_t rows = std::min(first, rest), columns = std::max(first, rest);
  const std::vector<double> drawn =
      RandomNormal({rows, columns}, 0, 1, DType::kFloat64, seed, stream, Place::Heap())
          .ToVector<double>();
  std::vector<double> q = drawn;
  for (int64_t r = 0; r < rows; ++r) {
    double* const row = q.data() + r * columns;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t other = 0; other < r; ++other) {
        const double* const done = q.data() + other * columns;
        const double along = std::inner_product(row, row + columns, done, 0.0);
        for (int64_t c = 0; c < columns; ++c) row[c] -= along * done[c];
      }
    }
    const double length = std::sqrt(std::inner_product(row, row + columns, row, 0.0));
    for (int64_t c = 0; c < columns; ++c) row[c] *= spec.initializer.value / length;
  }
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
