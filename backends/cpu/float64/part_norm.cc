// Normalisation of rows (layer normalisation), of groups of channels, and by the root of the mean square, of f64: each is of
// parts of the array, by sums as in column_blocks.h.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/float64/column_blocks.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu::float64 {
namespace {

// Sum of term(i) for i from begin to end.
template <typename Term>
Sum AddUp(int64_t begin, int64_t end, Term term) {
  constexpr int64_t kWide = 8;
  Sum sum = 0;
  int64_t i = begin;
  for (; i + kWide * kRun <= end; i += kWide * kRun) {
    double partial[kWide] = {};
    for (int64_t at = i; at < i + kWide * kRun; at += kWide) {
      for (int64_t lane = 0; lane < kWide; ++lane) partial[lane] += term(at + lane);
    }
    for (const double value : partial) sum += value;
  }
  for (; i < end; ++i) sum += term(i);
  return sum;
}

// The channels [first, first + width) of `rows` rows from element `begin` on.
struct Part {
  int64_t begin, rows, channels, first, width;

  // visit(index of the first element) for each row's run of `width` elements.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    for (int64_t r = 0; r < rows; ++r) visit(begin + r * channels + first);
  }
  template <typename Term>  // term(element, channel)
  Sum Total(Term term) const {
    Sum sum = 0;
    ForEachRun([&](int64_t run) {
      sum += AddUp(run, run + width, [&](int64_t i) { return term(i, first + i - run); });
    });
    return sum;
  }
  Sum count() const { return static_cast<Sum>(rows * width); }
};

void Normalize(const KernelCall& call, const Part& part, Sum epsilon, bool has_mean,
               const double* shift, double* mean_out, double* inverse_out) {
  const double *x = In(call, 0), *scale = In(call, 1);
  double* const z = Out(call, 0);
  Sum exact_mean = 0;
  if (has_mean) exact_mean = part.Total([x](int64_t i, int64_t) { return x[i]; }) / part.count();
  const auto mean = static_cast<double>(exact_mean), rest = static_cast<double>(exact_mean - mean);
  const auto from_mean = [=](int64_t i) { return (x[i] - mean) - rest; };
  const Sum squares = part.Total([&](int64_t i, int64_t) { return from_mean(i) * from_mean(i); });
  const auto inverse = static_cast<double>(1 / std::sqrt(squares / part.count() + epsilon));
  if (mean_out != nullptr) *mean_out = mean;
  *inverse_out = inverse;
  part.ForEachRun([&](int64_t run) {
    for (int64_t i = 0; i < part.width; ++i) {
      const double scaled = from_mean(run + i) * inverse * scale[part.first + i];
      z[run + i] = shift == nullptr ? scaled : scaled + shift[part.first + i];
    }
  });
}

void Differentiate(const KernelCall& call, const Part& part, const double* dz, bool has_mean,
                   double mean, double inverse) {
  const double *x = In(call, 0), *scale = In(call, 1);
  double* const dx = Out(call, 0);
  double offset = 0;
  if (has_mean) {
    offset = static_cast<double>(
        part.Total([=](int64_t i, int64_t c) { return dz[i] * scale[c]; }) / part.count());
  }
  const auto slope = static_cast<double>(part.Total([=](int64_t i, int64_t c) {
    return dz[i] * scale[c] * ((x[i] - mean) * inverse);
  }) / part.count());
  part.ForEachRun([&](int64_t run) {
    for (int64_t i = 0; i < part.width; ++i) {
      const double normal = (x[run + i] - mean) * inverse;
      dx[run + i] = inverse * (dz[run + i] * scale[part.first + i] - offset - normal * slope);
    }
  });
}

// The parameters' gradients, over all rows; element i has the statistics of number statistic(i). `joins`: of Block.
template <typename Statistic>
void SumOverRows(const KernelCall& call, const Rows& g, bool joins, const double* dz,
                 const double* means, const double* inverses, Statistic statistic, double* dscale,
                 double* dshift) {
  const double* const x = In(call, 0);
  ForEachBlock(
      call, g,
      [&](const Block& block) {
        Sum scales[kLanes], shifts[kLanes];
        block.AddUp(scales, [=](int64_t i, int64_t) {
          const int64_t s = statistic(i);
          return dz[i] * ((x[i] - (means == nullptr ? 0 : means[s])) * inverses[s]);
        });
        for (int64_t c = 0; c < block.width; ++c) {
          dscale[block.first + c] = static_cast<double>(scales[c]);
        }
        if (dshift == nullptr) return;
        block.AddUp(shifts, [dz](int64_t i, int64_t) { return dz[i]; });
        for (int64_t c = 0; c < block.width; ++c) {
          dshift[block.first + c] = static_cast<double>(shifts[c]);
        }
      },
      joins);
}

struct Groups {
  int64_t items, rows, channels, groups, width;

  Groups(const TensorRef& x, int64_t its_groups)
      : items(x.dims[0]),
        rows(1),
        channels(x.dims[x.rank - 1]),
        groups(its_groups),
        width(channels / groups) {
    for (int i = 1; i < x.rank - 1; ++i) rows *= x.dims[i];
  }
  template <typename Body>
  void ForEach(const KernelCall& call, Body body) const {
    ParallelFor(
        call.threads, items * groups, 1, items * rows * channels * 4,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            body(i, Part{i / groups * rows * channels, rows, channels, i % groups * width, width});
          }
        });
  }
};

void RunGroupNorm(const KernelCall& call) {
  const auto& a = call.attrs<GroupNormAttributes>();
  Groups(call.inputs[0], a.groups).ForEach(call, [&](int64_t i, const Part& part) {
    Normalize(call, part, a.epsilon, true, In(call, 2), Out(call, 1) + i, Out(call, 2) + i);
  });
}

void RunGroupNormGrad(const KernelCall& call) {
  const Groups g(call.inputs[0], call.inputs[2].dims[1]);
  const double *means = In(call, 2), *inverses = In(call, 3), *dz = In(call, 4);
  // Before dX, which may be written over what both read.
  SumOverRows(
      call, Rows(g.items * g.rows, g.channels), /*joins=*/false, dz, means, inverses,
      [&](int64_t i) { return i / (g.rows * g.channels) * g.groups + i % g.channels / g.width; },
      Out(call, 1), Out(call, 2));
  g.ForEach(call, [&](int64_t i, const Part& part) {
    Differentiate(call, part, dz, true, means[i], inverses[i]);
  });
}

// Each row is a part.
template <typename Body>
void ForEachRow(const KernelCall& call, const Rows& g, Body body) {
  ParallelFor(call.threads, g.rows, 1, g.rows * g.channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      body(row, Part{row * g.channels, 1, g.channels, 0, g.channels});
    }
  });
}

// Rows without elements have statistics too: NaN.
Rows OfStatistics(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  return {call.outputs[1].NumElements(), x.dims[x.rank - 1]};
}

void RunLayerNorm(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  ForEachRow(call, OfStatistics(call), [&](int64_t row, const Part& part) {
    Normalize(call, part, epsilon, true, In(call, 2), Out(call, 1) + row, Out(call, 2) + row);
  });
}

void RunLayerNormGrad(const KernelCall& call) {
  const Rows g(call.inputs[0]);
  const double *means = In(call, 2), *inverses = In(call, 3), *dz = In(call, 4);
  SumOverRows(
      call, g, /*joins=*/true, dz, means, inverses, [n = g.channels](int64_t i) { return i / n; },
      Out(call, 1), Out(call, 2));
  ForEachRow(call, g, [&](int64_t row, const Part& part) {
    Differentiate(call, part, dz, true, means[row], inverses[row]);
  });
}

void RunRmsNorm(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  ForEachRow(call, OfStatistics(call), [&](int64_t row, const Part& part) {
    Normalize(call, part, epsilon, false, nullptr, nullptr, Out(call, 1) + row);
  });
}

void RunRmsNormGrad(const KernelCall& call) {
  const Rows g(call.inputs[0]);
  const double *inverses = In(call, 2), *dz = In(call, 3);
  SumOverRows(
      call, g, /*joins=*/false, dz, nullptr, inverses,
      [n = g.channels](int64_t i) { return i / n; }, Out(call, 1), nullptr);
  ForEachRow(call, g, [&](int64_t row, const Part& part) {
    Differentiate(call, part, dz, false, 0, inverses[row]);
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kLayerNorm, &RunLayerNorm),
    Cpu(OpCode::kLayerNormGrad, &RunLayerNormGrad),
    Cpu(OpCode::kGroupNorm, &RunGroupNorm),
    Cpu(OpCode::kGroupNormGrad, &RunGroupNormGrad),
    Cpu(OpCode::kRmsNorm, &RunRmsNorm),
    Cpu(OpCode::kRmsNormGrad, &RunRmsNormGrad),
});

}  // namespace
}  // namespace tidepool::cpu::float64
