// Resizing: each line of the result is a sum of lines of the image, and each of its pixels one of that line's. The gradient
// is the same with the taps turned around: which places of the output an element of the input goes to.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/typed_product.h"
#include "tidepool/backends/cpu/images/combine.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/resize_taps.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

template <typename T>
const CombineLoops<T>& CombineLoopsOf() {
  if constexpr (sizeof(T) == sizeof(float)) {
    return CombineLoopsF32();
  } else {
    return kCombineLoopsF64;
  }
}

// What each place of a line is made of: places first[i] to first[i + 1] of the two other arrays.
template <typename T>
struct AxisTaps {
  int64_t *first, *places;
  T* weights;
  int64_t from, to;

  // from: what is read, to: what is made; `turned`: of the gradient.
  AxisTaps(int64_t its_from, int64_t its_to, bool turned, Parts& parts)
      : from(its_from), to(its_to) {
    const int64_t all = ResizeTaps::kMost * (turned ? from : to);
    first = parts.Take<int64_t>(to + 1);
    places = parts.Take<int64_t>(all);
    weights = parts.Take<T>(all);
  }
  void Fill(const ResizeAttributes& a, bool turned) {
    if (turned) {
      std::fill_n(first, to + 1, 0);
      for (int64_t i = 0; i < from; ++i) {
        const ResizeTaps taps = TapsOf(a, to, from, i);
        for (int t = 0; t < taps.count; ++t) ++first[taps.places[t] + 1];
      }
      for (int64_t i = 0; i < to; ++i) first[i + 1] += first[i];
      for (int64_t i = 0; i < from; ++i) {
        const ResizeTaps taps = TapsOf(a, to, from, i);
        for (int t = 0; t < taps.count; ++t) Put(first[taps.places[t]]++, i, taps.weights[t]);
      }
      // Each begins where the one before it ended now.
      std::copy_backward(first, first + to, first + to + 1);
      first[0] = 0;
    } else {
      first[0] = 0;
      for (int64_t i = 0; i < to; ++i) {
        const ResizeTaps taps = TapsOf(a, from, to, i);
        for (int t = 0; t < taps.count; ++t) Put(first[i] + t, taps.places[t], taps.weights[t]);
        first[i + 1] = first[i] + taps.count;
      }
    }
  }

 private:
  void Put(int64_t at, int64_t place, double weight) {
    places[at] = place;
    weights[at] = static_cast<T>(weight);
  }
};

template <typename T>
struct Resizing {
  int64_t batch, channels;
  bool turned;
  AxisTaps<T> down, along;
  size_t shared_bytes;
  int64_t most_lines;  // that come together in one
  size_t slot_bytes;

  Resizing(const KernelCall& call, Parts parts)
      : batch(call.outputs[0].dims[0]),
        channels(call.outputs[0].dims[3]),
        turned(call.op == OpCode::kResize2dGrad),
        down(call.inputs[0].dims[1], call.outputs[0].dims[1], turned, parts),
        along(call.inputs[0].dims[2], call.outputs[0].dims[2], turned, parts) {
    shared_bytes = parts.bytes();
    most_lines = ResizeTaps::kMost * (turned ? down.from : 1);
    Parts slot(nullptr);
    slot.Take<T>(along.from * channels);
    slot.Take<const T*>(most_lines);
    slot_bytes = slot.bytes();
  }
};

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  const Resizing<T> r(call, Parts(nullptr));
  return r.shared_bytes + r.slot_bytes * static_cast<size_t>(call.threads.count);
}

template <typename T>
void Run(const KernelCall& call) {
  Resizing<T> r(call, Parts(call.scratch));
  const auto& attributes = call.attrs<ResizeAttributes>();
  r.down.Fill(attributes, r.turned);
  r.along.Fill(attributes, r.turned);
  const T* const in = call.inputs[0].as<T>();
  T* const out = call.outputs[0].as<T>();
  const CombineLoops<T>& loops = CombineLoopsOf<T>();
  const int64_t in_line = r.along.from * r.channels, out_line = r.along.to * r.channels;
  const int64_t work = 4 * r.batch * r.down.to * (in_line + out_line);
  const std::shared_ptr<ThreadPool> pool = work < kMinParallelWork ? nullptr : PoolOf(call.threads);
  ParallelTasks(pool.get(), r.batch * r.down.to, [&](int64_t task, int slot) {
    Parts parts(static_cast<char*>(call.scratch) + r.shared_bytes +
                r.slot_bytes * static_cast<size_t>(slot));
    T* const line = parts.Take<T>(in_line);
    const T** const lines = parts.Take<const T*>(r.most_lines);
    const T* const image = in + task / r.down.to * r.down.from * in_line;
    const int64_t row = task % r.down.to;
    int64_t count = 0;
    const int64_t begin = r.down.first[row], end = r.down.first[row + 1];
    for (int64_t t = begin; t < end; ++t) lines[count++] = image + r.down.places[t] * in_line;
    loops.lines(lines, r.down.weights + begin, count, line, in_line);
    loops.places(line, r.along.first, r.along.places, r.along.weights, r.along.to, r.channels,
                 out + task * out_line);
  });
}

const NetworkKernels of_f32({
    {OpCode::kResize2d, &Run<float>, &ScratchBytes<float>},
    {OpCode::kResize2dGrad, &Run<float>, &ScratchBytes<float>},
});
const KernelRegistrar of_f64({
    {OpCode::kResize2d, DeviceType::kHost, DType::kFloat64, "cpu", 10, &Run<double>,
     &ScratchBytes<double>},
    {OpCode::kResize2dGrad, DeviceType::kHost, DType::kFloat64, "cpu", 10, &Run<double>,
     &ScratchBytes<double>},
});

}  // namespace
}  // namespace tidepool::cpu
