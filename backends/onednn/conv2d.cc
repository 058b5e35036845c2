// Convolutions and their gradients on oneDNN.
//
// A large batch is cut into pieces that depend on the shape alone, so that results are the same bits
// for any number of threads; our threads take pieces, oneDNN itself works on one. The gradient of a
// filter is made per piece and added up in order. Scratch: filters in oneDNN's layout, and what
// its primitives ask for, once per thread.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "tidepool/backends/onednn/choice.h"
#include "tidepool/backends/onednn/convolution_cache.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::onednn {
namespace {

// About 150 us of work.
constexpr int64_t kMultiplyAddsPerPiece = 1 << 23;
constexpr int64_t kMaxPieces = 16;

size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

ConvolutionShape ShapeOf(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const bool grad_input = call.op == OpCode::kConv2dGradInput;
  const bool grad_filter = call.op == OpCode::kConv2dGradFilter;
  const TensorRef& input = grad_input ? call.outputs[0] : call.inputs[0];
  const TensorRef& filter = grad_filter ? call.outputs[0] : call.inputs[1];
  const TensorRef& output = grad_input    ? call.inputs[0]
                            : grad_filter ? call.inputs[1]
                                          : call.outputs[0];
  ConvolutionShape s;
  s.kind = grad_input    ? ConvolutionKind::kGradInput
           : grad_filter ? ConvolutionKind::kGradFilter
                         : ConvolutionKind::kForward;
  s.batch = input.dims[0], s.in_height = input.dims[1], s.in_width = input.dims[2];
  s.channels = input.dims[3];
  s.groups = a.groups;
  s.filters = filter.dims[0], s.kernel_height = filter.dims[1], s.kernel_width = filter.dims[2];
  s.out_height = output.dims[1], s.out_width = output.dims[2];
  s.stride_height = a.stride_height, s.stride_width = a.stride_width;
  s.pad_top = a.pad_top, s.pad_bottom = a.pad_bottom;
  s.pad_left = a.pad_left, s.pad_right = a.pad_right;
  s.dilation_height = a.dilation_height, s.dilation_width = a.dilation_width;
  if (s.kind == ConvolutionKind::kForward) {
    s.bias = call.inputs[2].present;
    s.relu = a.relu;
  }
  return s;
}

// Images [index * grain, ...) of the batch; the last piece may be smaller.
struct Pieces {
  int64_t count = 1, grain = 0;
  std::shared_ptr<const Convolution> whole, last;

  const Convolution& at(int64_t index) const { return index + 1 == count ? *last : *whole; }
  size_t FilterBytes() const {
    return RoundUp(std::max(whole->filter_bytes(), last->filter_bytes()));
  }
  size_t ScratchpadBytes() const {
    return RoundUp(std::max(whole->scratchpad_bytes(), last->scratchpad_bytes()));
  }
  // Filters are brought into oneDNN's layout once for all pieces; another batch might want another.
  bool AreUsable() const {
    return whole != nullptr && last != nullptr && whole->HasFilterLayoutOf(*last);
  }
};

Pieces PiecesOf(ConvolutionShape s) {
  Pieces pieces;
  const int64_t wanted = std::clamp<int64_t>(s.MultiplyAdds() / kMultiplyAddsPerPiece, 1,
                                             std::min(kMaxPieces, s.batch));
  pieces.grain = (s.batch + wanted - 1) / wanted;
  pieces.count = (s.batch + pieces.grain - 1) / pieces.grain;
  const int64_t last = s.batch - (pieces.count - 1) * pieces.grain;
  s.batch = pieces.grain;
  pieces.whole = ConvolutionCache::Global().Find(s);
  s.batch = last;
  pieces.last = last == pieces.grain ? pieces.whole : ConvolutionCache::Global().Find(s);
  return pieces;
}

// Generated code may load whole vectors: bytes behind the end must be readable. Views with gaps are
// copied by the dispatcher.
bool TailsAreReadable(const KernelCall& call) {
  return std::all_of(call.inputs.begin(), call.inputs.end(),
                     [](const TensorRef& x) { return !x.present || x.readable_tail; });
}

bool Supports(const KernelCall& call) {
  const ConvolutionShape s = ShapeOf(call);
  if (s.InputElements() == 0 || s.OutputElements() == 0 || s.FilterElements() == 0) return false;
  if (!TailsAreReadable(call)) return false;
  if (!IsForced() && !IsFastest(s)) return false;
  return PiecesOf(s).AreUsable();
}

// Layout of the scratch: filters in oneDNN's layout (of gradients one a piece), then scratchpads.
int64_t FiltersInScratch(const KernelCall& call, const Pieces& pieces) {
  return call.op == OpCode::kConv2dGradFilter ? pieces.count : 1;
}

int64_t Slots(const KernelCall& call, const Pieces& pieces) {
  return std::min<int64_t>(std::max(call.threads.count, 1), pieces.count);
}

size_t ScratchBytes(const KernelCall& call) {
  const Pieces pieces = PiecesOf(ShapeOf(call));
  return FiltersInScratch(call, pieces) * pieces.FilterBytes() +
         Slots(call, pieces) * pieces.ScratchpadBytes();
}

// Tasks of the pool must not throw: the first exception is kept and thrown here.
void ForEachPiece(const KernelCall& call, const Pieces& pieces,
                  absl::FunctionRef<void(int64_t index, int slot)> body) {
  const std::shared_ptr<ThreadPool> pool = pieces.count > 1 ? PoolOf(call.threads) : nullptr;
  if (pool == nullptr) {
    for (int64_t index = 0; index < pieces.count; ++index) body(index, 0);
    return;
  }
  std::mutex mutex;
  std::exception_ptr first;
  pool->Run(pieces.count, [&](int64_t index, int slot) {
    try {
      body(index, slot);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  });
  if (first != nullptr) std::rethrow_exception(first);
}

void Run(const KernelCall& call) {
  const ConvolutionShape s = ShapeOf(call);
  const Pieces pieces = PiecesOf(s);
  std::byte* const filters = static_cast<std::byte*>(call.scratch);
  std::byte* const scratchpads = filters + FiltersInScratch(call, pieces) * pieces.FilterBytes();
  const int64_t input_step = pieces.grain * (s.InputElements() / s.batch);
  const int64_t output_step = pieces.grain * (s.OutputElements() / s.batch);
  const float* a = call.inputs[0].as<float>();
  const float* b = call.inputs[1].as<float>();
  float* out = call.outputs[0].as<float>();
  const auto scratchpad = [&](int slot) { return scratchpads + slot * pieces.ScratchpadBytes(); };

  if (s.kind == ConvolutionKind::kGradFilter) {
    const auto filter = [&](int64_t index) { return filters + index * pieces.FilterBytes(); };
    ForEachPiece(call, pieces, [&](int64_t index, int slot) {
      pieces.at(index).GradFilter(a + index * input_step, b + index * output_step, filter(index),
                                  scratchpad(slot));
    });
    const bool accumulate = call.attrs<Conv2dAttributes>().accumulate;
    for (int64_t index = 0; index < pieces.count; ++index) {
      pieces.at(index).ExportFilter(filter(index), out, accumulate || index > 0, scratchpad(0));
    }
    return;
  }
  pieces.at(0).ImportFilter(b, filters, scratchpad(0));
  ForEachPiece(call, pieces, [&](int64_t index, int slot) {
    const Convolution& convolution = pieces.at(index);
    if (s.kind == ConvolutionKind::kForward) {
      convolution.Forward(a + index * input_step, filters, call.inputs[2].as<float>(),
                          out + index * output_step, scratchpad(slot));
    } else {
      convolution.GradInput(a + index * output_step, filters, out + index * input_step,
                            scratchpad(slot));
    }
  });
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32;

const KernelRegistrar registrar({
    {OpCode::kConv2d, kHost, kF32, kProvider, kPriority, &Run, &ScratchBytes, &Supports},
    {OpCode::kConv2dGradInput, kHost, kF32, kProvider, kPriority, &Run, &ScratchBytes, &Supports},
    {OpCode::kConv2dGradFilter, kHost, kF32, kProvider, kPriority, &Run, &ScratchBytes, &Supports},
});

}  // namespace
}  // namespace tidepool::onednn
