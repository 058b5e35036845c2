// Normalisation of groups of channels and by the root of the mean square, of f64. Sums are of short runs in double,
// added up in long double.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

using Sum = long double;

const double* In(const KernelCall& call, int i) { return call.inputs[i].as<double>(); }
double* Out(const KernelCall& call, int o) { return call.outputs[o].as<double>(); }

// Sum of term(i) for i from begin to end.
template <typename Term>
Sum AddUp(int64_t begin, int64_t end, Term term) {
  constexpr int64_t kLanes = 8, kRun = 16;
  Sum sum = 0;
  int64_t i = begin;
  for (; i + kLanes * kRun <= end; i += kLanes * kRun) {
    double partial[kLanes] = {};
    for (int64_t at = i; at < i + kLanes * kRun; at += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += term(at + lane);
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

void Normalize(const KernelCall& call, const Part& part, Sum epsilon, bool has_mean, const double* shift,
               double* mean_out, double* inverse_out) {
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

void Differentiate(const KernelCall& call, const Part& part, const double* dz, bool has_mean, double mean,
                   double inverse) {
  const double *x = In(call, 0), *scale = In(call, 1);
  double* const dx = Out(call, 0);
  double offset = 0;
  if (has_mean) {
    offset = static_cast<double>(
        part.Total([=](int64_t i, int64_t c) { return dz[i] * scale[c]; }) / part.count());
  }
  const auto slope = static_cast<double>(
      part.Total([=](int64_t i, int64_t c) { return dz[i] * scale[c] * ((x[i] - mean) * inverse); }) / part.count());
  part.ForEachRun([&](int64_t run) {
    for (int64_t i = 0; i < part.width; ++i) {
      const double normal = (x[run + i] - mean) * inverse;
      dx[run + i] = inverse * (dz[run + i] * scale[part.first + i] - offset - normal * slope);
    }
  });
}

// The parameters' gradients, a strip of channels at a time over all rows; row r has the statistics of number
// statistic(r, channel).
template <typename Statistic>
void SumOverRows(const KernelCall& call, int64_t rows, int64_t channels, const double* dz, const double* means,
                 const double* inverses, Statistic statistic, double* dscale, double* dshift) {
  constexpr int64_t kStrip = 32, kRun = 16;
  const double* const x = In(call, 0);
  const int64_t strips = (channels + kStrip - 1) / kStrip;
  ParallelFor(call.threads, strips, 1, rows * channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t first = strip * kStrip, width = std::min(kStrip, channels - first);
      Sum scales[kStrip] = {}, shifts[kStrip] = {};
      for (int64_t row = 0; row < rows; row += kRun) {
        double of_scale[kStrip] = {}, of_shift[kStrip] = {};
        for (int64_t r = row; r < std::min(rows, row + kRun); ++r) {
          for (int64_t c = 0; c < width; ++c) {
            const int64_t i = r * channels + first + c, s = statistic(r, first + c);
            of_scale[c] += dz[i] * ((x[i] - (means == nullptr ? 0 : means[s])) * inverses[s]);
            of_shift[c] += dz[i];
          }
        }
        for (int64_t c = 0; c < width; ++c) scales[c] += of_scale[c], shifts[c] += of_shift[c];
      }
      for (int64_t c = 0; c < width; ++c) {
        dscale[first + c] = static_cast<double>(scales[c]);
        if (dshift != nullptr) dshift[first + c] = static_cast<double>(shifts[c]);
      }
    }
  });
}

struct Groups {
  int64_t items, rows, channels, groups, width;

  Groups(const TensorRef& x, int64_t its_groups)
      : items(x.dims[0]), rows(1), channels(x.dims[x.rank - 1]), groups(its_groups), width(channels / groups) {
    for (int i = 1; i < x.rank - 1; ++i) rows *= x.dims[i];
  }
  template <typename Body>
  void ForEach(const KernelCall& call, Body body) const {
    ParallelFor(call.threads, items * groups, 1, items * rows * channels * 4, [&](int64_t begin, int64_t end) {
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
  g.ForEach(call, [&](int64_t i, const Part& part) { Differentiate(call, part, dz, true, means[i], inverses[i]); });
  SumOverRows(
      call, g.items * g.rows, g.channels, dz, means, inverses,
      [&](int64_t row, int64_t channel) { return row / g.rows * g.groups + channel / g.width; }, Out(call, 1),
      Out(call, 2));
}

// Each row is a part.
template <typename Body>
void ForEachRow(const KernelCall& call, int64_t rows, int64_t n, Body body) {
  ParallelFor(call.threads, rows, 1, rows * n * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, Part{row * n, 1, n, 0, n});
  });
}

void RunRmsNorm(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  ForEachRow(call, call.outputs[1].NumElements(), x.dims[x.rank - 1], [&](int64_t row, const Part& part) {
    Normalize(call, part, epsilon, false, nullptr, nullptr, Out(call, 1) + row);
  });
}

void RunRmsNormGrad(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t n = x.dims[x.rank - 1], rows = call.inputs[2].NumElements();
  const double *inverses = In(call, 2), *dz = In(call, 3);
  ForEachRow(call, rows, n,
             [&](int64_t row, const Part& part) { Differentiate(call, part, dz, false, 0, inverses[row]); });
  SumOverRows(call, rows, n, dz, nullptr, inverses, [](int64_t row, int64_t) { return row; }, Out(call, 1), nullptr);
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kGroupNorm, &RunGroupNorm),
    Cpu(OpCode::kGroupNormGrad, &RunGroupNormGrad),
    Cpu(OpCode::kRmsNorm, &RunRmsNorm),
    Cpu(OpCode::kRmsNormGrad, &RunRmsNormGrad),
});

}  // namespace
}  // namespace tidepool::cpu
