// Batch and layer normalisation of f64: the mean first, then the squares around it. Sums are of short runs in
// double, added up in long double.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

using Sum = long double;

const double* In(const KernelCall& call, int i) { return call.inputs[i].as<double>(); }
double* Out(const KernelCall& call, int o) { return call.outputs[o].as<double>(); }

struct Rows {
  int64_t rows, channels;
  explicit Rows(const TensorRef& x) : rows(0), channels(x.dims[x.rank - 1]) {
    if (channels > 0) rows = x.NumElements() / channels;
  }
};

// Neighbouring channels are worked on together, so that rows are read in whole cache lines. Where a row
// has few, several rows are one after the other: a lane is the place of an element in those.
constexpr int64_t kLanes = 32;
// So many elements of a lane are added in double before their sum goes to the long one.
constexpr int64_t kRun = 16;

class Block {
 public:
  Block(const Rows& g, int64_t first, int64_t width) : first(first), width(width) {
    elements_ = g.rows * g.channels;
    lanes = width == g.channels ? std::max(width, kLanes / width * width) : width;
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
void ForEachBlock(const KernelCall& call, const Rows& g, Body body) {
  const int64_t blocks = (g.channels + kLanes - 1) / kLanes;
  ParallelFor(call.threads, blocks, 1, g.rows * g.channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(Block(g, block * kLanes, std::min(kLanes, g.channels - block * kLanes)));
    }
  });
}

void RunBatchNorm(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const Rows g(call.inputs[0]);
  const double* x = In(call, 0);
  double* z = Out(call, 0);
  const auto rows = static_cast<Sum>(g.rows);
  ForEachBlock(call, g, [&](const Block& block) {
    Sum mean[kLanes], variance[kLanes];
    double center[kLanes], rest[kLanes], factor[kLanes], shift[kLanes];
    block.AddUp(mean, [x](int64_t i, int64_t) { return x[i]; });
    for (int64_t c = 0; c < block.width; ++c) mean[c] /= rows;
    block.ToLanes(mean, center);
    // What rounding the mean leaves out counts where elements are much nearer to it than to 0.
    for (int64_t lane = 0; lane < block.lanes; ++lane) {
      rest[lane] = static_cast<double>(mean[lane % block.width] - center[lane]);
    }
    block.AddUp(variance, [x, &center, &rest](int64_t i, int64_t lane) {
      const double d = (x[i] - center[lane]) - rest[lane];
      return d * d;
    });
    for (int64_t c = 0; c < block.width; ++c) {
      const Sum inverse = 1 / std::sqrt(variance[c] / rows + epsilon);
      Out(call, 1)[block.first + c] = static_cast<double>(mean[c]);
      Out(call, 2)[block.first + c] = static_cast<double>(inverse);
      variance[c] = inverse * In(call, 1)[block.first + c];
    }
    block.ToLanes(variance, factor);
    block.ToLanes(In(call, 2) + block.first, shift);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        z[at + lane] = ((x[at + lane] - center[lane]) - rest[lane]) * factor[lane] + shift[lane];
      }
    });
  });
}

void RunBatchNormInference(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const Rows g(call.inputs[0]);
  const double* x = In(call, 0);
  double* z = Out(call, 0);
  ForEachBlock(call, g, [&](const Block& block) {
    Sum factors[kLanes];
    for (int64_t c = 0; c < block.width; ++c) {
      factors[c] = In(call, 1)[block.first + c] / std::sqrt(In(call, 4)[block.first + c] + epsilon);
    }
    double center[kLanes], factor[kLanes], shift[kLanes];
    block.ToLanes(factors, factor);
    block.ToLanes(In(call, 2) + block.first, shift);
    block.ToLanes(In(call, 3) + block.first, center);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        z[at + lane] = (x[at + lane] - center[lane]) * factor[lane] + shift[lane];
      }
    });
  });
}

void RunBatchNormGrad(const KernelCall& call) {
  const Rows g(call.inputs[0]);
  const double *x = In(call, 0), *dz = In(call, 4);
  double* dx = Out(call, 0);
  const auto rows = static_cast<Sum>(g.rows);
  ForEachBlock(call, g, [&](const Block& block) {
    double center[kLanes], inverse[kLanes], factor[kLanes], offset[kLanes], slope[kLanes];
    block.ToLanes(In(call, 2) + block.first, center);
    block.ToLanes(In(call, 3) + block.first, inverse);
    Sum dscale[kLanes], dshift[kLanes], factors[kLanes];
    block.AddUp(dshift, [dz](int64_t i, int64_t) { return dz[i]; });
    block.AddUp(dscale, [x, dz, &center](int64_t i, int64_t lane) {
      return dz[i] * (x[i] - center[lane]);
    });
    for (int64_t c = 0; c < block.width; ++c) {
      dscale[c] *= inverse[c];
      Out(call, 1)[block.first + c] = static_cast<double>(dscale[c]);
      Out(call, 2)[block.first + c] = static_cast<double>(dshift[c]);
      factors[c] = static_cast<Sum>(In(call, 1)[block.first + c]) * inverse[c];
      dshift[c] /= rows;
      dscale[c] *= inverse[c] / rows;
    }
    block.ToLanes(factors, factor);
    block.ToLanes(dshift, offset);
    block.ToLanes(dscale, slope);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        dx[at + lane] = factor[lane] * (dz[at + lane] - offset[lane] -
                                        (x[at + lane] - center[lane]) * slope[lane]);
      }
    });
  });
}

// Sum of term(i) for i below n, in lanes.
template <typename Term>
Sum AddUpLine(int64_t n, Term term) {
  Sum sum = 0;
  int64_t i = 0;
  constexpr int64_t kWide = 8;
  for (; i + kWide * kRun <= n; i += kWide * kRun) {
    double partial[kWide] = {};
    for (int64_t at = i; at < i + kWide * kRun; at += kWide) {
      for (int64_t lane = 0; lane < kWide; ++lane) partial[lane] += term(at + lane);
    }
    for (const double value : partial) sum += value;
  }
  for (; i < n; ++i) sum += term(i);
  return sum;
}

// body(row) on several threads.
template <typename Body>
void ForEachLine(const KernelCall& call, const Rows& g, Body body) {
  ParallelFor(call.threads, g.rows, 1, g.rows * g.channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

void RunLayerNorm(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const Rows g(call.inputs[0]);
  const int64_t n = g.channels;
  const double *scale = In(call, 1), *shift = In(call, 2);
  ForEachLine(call, g, [&](int64_t row) {
    const double* x = In(call, 0) + row * n;
    double* z = Out(call, 0) + row * n;
    const Sum exact_mean = AddUpLine(n, [x](int64_t i) { return x[i]; }) / static_cast<Sum>(n);
    const auto mean = static_cast<double>(exact_mean), rest = static_cast<double>(exact_mean - mean);
    const auto from_mean = [=](int64_t i) { return (x[i] - mean) - rest; };
    const Sum variance = AddUpLine(n, [=](int64_t i) { return from_mean(i) * from_mean(i); });
    const auto inverse =
        static_cast<double>(1 / std::sqrt(variance / static_cast<Sum>(n) + epsilon));
    Out(call, 1)[row] = mean;
    Out(call, 2)[row] = inverse;
    for (int64_t i = 0; i < n; ++i) z[i] = from_mean(i) * inverse * scale[i] + shift[i];
  });
}

void RunLayerNormGrad(const KernelCall& call) {
  const Rows g(call.inputs[0]);
  const int64_t n = g.channels;
  const double *x = In(call, 0), *scale = In(call, 1), *dz = In(call, 4);
  const double *means = In(call, 2), *inverses = In(call, 3);
  ForEachBlock(call, g, [&](const Block& block) {
    Sum dscale[kLanes], dshift[kLanes];
    block.AddUp(dshift, [dz](int64_t i, int64_t) { return dz[i]; });
    block.AddUp(dscale, [=](int64_t i, int64_t) {
      return dz[i] * ((x[i] - means[i / n]) * inverses[i / n]);
    });
    for (int64_t c = 0; c < block.width; ++c) {
      Out(call, 1)[block.first + c] = static_cast<double>(dscale[c]);
      Out(call, 2)[block.first + c] = static_cast<double>(dshift[c]);
    }
  });
  ForEachLine(call, g, [&](int64_t row) {
    const double *line = x + row * n, *gradient = dz + row * n;
    double* dx = Out(call, 0) + row * n;
    const double mean = means[row], inverse = inverses[row];
    const auto count = static_cast<Sum>(n);
    const auto offset = static_cast<double>(
        AddUpLine(n, [=](int64_t i) { return gradient[i] * scale[i]; }) / count);
    const auto slope = static_cast<double>(
        AddUpLine(n, [=](int64_t i) { return gradient[i] * scale[i] * ((line[i] - mean) * inverse); }) /
        count);
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = inverse * (gradient[i] * scale[i] - offset - (line[i] - mean) * inverse * slope);
    }
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kBatchNorm, &RunBatchNorm),
    Cpu(OpCode::kBatchNormInference, &RunBatchNormInference),
    Cpu(OpCode::kBatchNormGrad, &RunBatchNormGrad),
    Cpu(OpCode::kLayerNorm, &RunLayerNorm),
    Cpu(OpCode::kLayerNormGrad, &RunLayerNormGrad),
});

}  // namespace
}  // namespace tidepool::cpu
