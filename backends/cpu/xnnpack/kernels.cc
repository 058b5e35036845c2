// Operators that run on XNNPACK. Products and convolutions take it where the right side is
// constant, so that packing is paid once; docs/performance_kernels.md has the measurements behind it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "tidepool/backends/cpu/conv2d_call.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/backends/cpu/xnnpack/operator_cache.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// XNNPACK's own pool waits for every worker to check in, which takes a scheduler's quantum when a core is taken, and
// it divides work by the number of threads. So its operators run on the calling thread, or several of them on several, in
// pieces that are the same for any number of threads: which provider a call goes to, and its bits, depend on shapes alone.

// supports() is asked before the dispatcher makes operands dense; views with gaps are rare here.
// XNNPACK reads up to 16 bytes past the end of its inputs.
bool IsDense(const KernelCall& call) {
  for (const TensorRef& input : call.inputs) {
    if (!input.dense || !input.readable_tail) return false;
  }
  return true;
}

bool IsFinite(const TensorRef& x) {
  return !x.present || Loops().all_finite(x.as<float>(), x.NumElements());
}

// In a dry run operands hold whatever memory held: which kernel runs, and the scratch that it takes, are those of numbers.
bool IsFiniteOrNotThere(const TensorRef& x) { return internal::KernelsAreOff() || IsFinite(x); }

XnnpackOperators::Weights WeightsOf(const TensorRef& filter, const TensorRef& bias) {
  XnnpackOperators::Weights weights{filter.buffer_id, reinterpret_cast<uintptr_t>(filter.data), 0,
                                    0};
  if (bias.present)
    weights.bias_id = bias.buffer_id, weights.bias_data = reinterpret_cast<uintptr_t>(bias.data);
  return weights;
}
XnnpackOperators::Versions VersionsOf(const TensorRef& filter, const TensorRef& bias) {
  return {filter.version, bias.present ? bias.version : 0};
}

// Packed weights are kept, so those that foreign code may write to at any time go to kernels that read
// them where they are.
bool MayBeKept(const TensorRef& weights) { return !weights.present || weights.buffer_id != 0; }

// XNNPACK clamps every result, and a clamp turns NaN into a bound: operands that can make NaN go to
// kernels that keep it. Reading the operands once costs little beside the work; constant weights
// are read when they change.
bool WeightsAreKnownAndFinite(const TensorRef& filter, const TensorRef& bias) {
  if (!MayBeKept(filter) || !MayBeKept(bias)) return false;
  if (internal::KernelsAreOff()) return true;
  return XnnpackOperators::Global().Remember(WeightsOf(filter, bias), VersionsOf(filter, bias),
                                             filter.NumElements(),
                                             [&] { return IsFinite(filter) && IsFinite(bias); });
}

// ParallelFor whose pieces may throw: the first error is thrown when all have ended.
void InPieces(Threads threads, int64_t count, int64_t grain, int64_t work,
              absl::FunctionRef<void(int64_t begin, int64_t end)> run) {
  std::mutex mutex;
  std::exception_ptr first;
  ParallelFor(threads, count, grain, work, [&](int64_t begin, int64_t end) {
    try {
      run(begin, end);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  });
  if (first != nullptr) std::rethrow_exception(first);
}

// ---- products -------------------------------------------------------------------------------------

// With packed weights that outgrow the cache it is slower than our kernels: it does not divide the inner dimension.
constexpr int64_t kMostWeights = int64_t{1} << 20;
// It is ahead where there are few rows only, which it keeps in registers; ours do so too with AVX-512.
constexpr int64_t kMostRows = 64;
// Of fewer rows the product is as fast as its weights are read, by whichever kernel.
constexpr int64_t kFewestRows = 4;
// Columns of a piece, a multiple of all its tiles' widths.
constexpr int64_t kColumns = 64;

bool SupportsMatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& z = call.outputs[0];
  if (!a.y_is_constant || z.rank != 2 || a.transpose_x || a.accumulate || z.NumElements() == 0)
    return false;
  const int64_t weights = call.inputs[1].NumElements();
  return z.dims[0] >= kFewestRows &&
         ((z.dims[0] <= kMostRows && !OursAreWidest()) || XnnpackIsWider()) && weights > 0 &&
         weights <= kMostWeights && XnnpackIsUsable() && IsDense(call) &&
         IsFiniteOrNotThere(call.inputs[0]) &&
         WeightsAreKnownAndFinite(call.inputs[1], call.inputs[2]);
}

// Columns [begin, begin + width) of the product.
void RunColumns(const KernelCall& call, int64_t begin, int64_t width) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& bias = call.inputs[2];
  const int64_t m = call.outputs[0].dims[0], n = call.outputs[0].dims[1], k = x.dims[1];
  XnnpackOperators::Key key{1, WeightsOf(y, bias), {}};
  key.sizes[0] = n;
  key.sizes[1] = k;
  key.sizes[2] = a.relu;
  key.sizes[3] = a.transpose_y;
  key.sizes[4] = begin;
  const float* const biases = bias.present ? bias.as<float>() + begin : nullptr;
  const float lowest = a.relu ? 0.0f : -kInfinity;
  XnnpackOperators::Global().With(
      key, VersionsOf(y, bias), "matmul",
      [&](xnn_operator_t* op) {
        if (a.transpose_y || width == n) {
          return CreateFullyConnected(k, width, n, y.as<float>() + (a.transpose_y ? begin * k : 0),
                                      biases, lowest,
                                      a.transpose_y ? 0 : XNN_FLAG_TRANSPOSE_WEIGHTS, op);
        }
        const XnnpackBlock block(static_cast<size_t>(k * width) * sizeof(float));  // to be packed
        auto* const columns = static_cast<float*>(block.data());
        if (columns == nullptr) return xnn_status_out_of_memory;
        for (int64_t row = 0; row < k; ++row)
          std::copy_n(y.as<float>() + row * n + begin, width, columns + row * width);
        return CreateFullyConnected(k, width, n, columns, biases, lowest,
                                    XNN_FLAG_TRANSPOSE_WEIGHTS, op);
      },
      [&](xnn_operator_t op) {
        return RunFullyConnected(op, m, x.as<float>(), call.outputs[0].as<float>() + begin);
      });
}

void RunMatMul(const KernelCall& call) {
  const int64_t n = call.outputs[0].dims[1];
  InPieces(call.threads, n, kColumns, n * call.inputs[0].NumElements(),
           [&](int64_t begin, int64_t end) { RunColumns(call, begin, end - begin); });
}

// ---- convolutions ---------------------------------------------------------------------------------

// Output channels of a piece. Those of groups lie apart in each pixel, whose lines are fetched by each piece.
constexpr int64_t kChannels = 32, kGroupedChannels = 64;
// Of so few, ours is the time that packing takes.
constexpr int64_t kFewPixels = 64;

bool SupportsConv2d(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  // The corrected micro-kernel pads input channels to a multiple of 4: one channel would do four
  // times the work. Depthwise convolutions have micro-kernels of their own.
  const int64_t group_channels = call.inputs[1].dims[3];
  const bool is_depthwise = a.groups > 1 && group_channels == 1;
  // Two pieces at least, where ours would be several.
  const bool is_divided =
      a.groups >= 2 * kGroupedChannels ||
      call.outputs[0].NumElements() * call.inputs[1].dims[1] * call.inputs[1].dims[2] <
          kMinParallelWork;
  const int64_t filters = std::max<int64_t>(1, call.inputs[1].dims[0]);
  const bool is_small = call.outputs[0].NumElements() / filters <= kFewPixels;
  return a.filter_is_constant && call.inputs[1].NumElements() > 0 &&
         (is_depthwise ? is_divided && !OursAreWidest()
                       : group_channels >= 4 && (is_small || XnnpackIsWider())) &&
         call.outputs[0].NumElements() > 0 && XnnpackIsUsable() && IsDense(call) &&
         IsFiniteOrNotThere(call.inputs[0]) &&
         WeightsAreKnownAndFinite(call.inputs[1], call.inputs[2]);
}

// A convolution as pieces of some output channels, or of some whole groups.
struct Convolution {
  explicit Convolution(const KernelCall& of)
      : call(of),
        problem(ForwardProblem(of)),
        groups(of.attrs<Conv2dAttributes>().groups),
        in(problem.in_channels / groups),
        out(problem.out_channels / groups),
        grain(groups == 1 ? kChannels : (kGroupedChannels + out - 1) / out) {}

  int64_t count() const { return groups == 1 ? out : groups; }  // of what grain counts
  int64_t pieces() const { return (count() + grain - 1) / grain; }
  int64_t work() const {
    return call.outputs[0].NumElements() * call.inputs[1].NumElements() / problem.out_channels;
  }

  // Runs `use` with the operator of [begin, end).
  void With(int64_t begin, int64_t end, absl::FunctionRef<xnn_status(xnn_operator_t)> use) const {
    const Conv2dProblem& p = problem;
    const bool relu = call.attrs<Conv2dAttributes>().relu;
    const TensorRef& filter = call.inputs[1];
    const TensorRef& bias = call.inputs[2];
    XnnpackOperators::Key key{2, WeightsOf(filter, bias), {}};
    const int64_t sizes[] = {p.kernel_height,
                             p.kernel_width,
                             p.stride_height,
                             p.stride_width,
                             p.pad_top,
                             p.pad_bottom,
                             p.pad_left,
                             p.pad_right,
                             p.in_channels,
                             p.dilation_height,
                             p.dilation_width,
                             p.out_channels,
                             relu,
                             groups,
                             begin};
    std::copy(std::begin(sizes), std::end(sizes), key.sizes);
    const ConvolutionPart part =
        groups == 1 ? ConvolutionPart{1, in, end - begin} : ConvolutionPart{end - begin, in, out};
    const int64_t first = FirstOut(begin);
    XnnpackOperators::Global().With(
        key, VersionsOf(filter, bias), "conv2d",
        [&](xnn_operator_t* op) {
          return CreateConvolution(
              p, part, filter.as<float>() + first * p.kernel_height * p.kernel_width * in,
              bias.present ? bias.as<float>() + first : nullptr, relu ? 0.0f : -kInfinity, op);
        },
        use);
  }
  int64_t FirstOut(int64_t begin) const { return groups == 1 ? begin : begin * out; }
  int64_t FirstIn(int64_t begin) const { return groups == 1 ? 0 : begin * in; }

  const KernelCall& call;
  const Conv2dProblem problem;
  const int64_t groups, in, out;  // channels of a group
  const int64_t grain;
};

// The same for each piece; the first is the largest.
size_t PieceScratchBytes(const Convolution& c) {
  if (!ConvolutionsTakeWorkspace()) return 0;
  size_t bytes = 0;
  c.With(0, std::min(c.grain, c.count()),
         [&](xnn_operator_t op) { return ConvolutionWorkspace(op, c.problem, &bytes); });
  return (bytes + 63) / 64 * 64;
}

size_t Conv2dScratchBytes(const KernelCall& call) {
  const Convolution c(call);
  return PieceScratchBytes(c) * static_cast<size_t>(c.pieces());
}

void RunConv2d(const KernelCall& call) {
  const Convolution c(call);
  const size_t scratch = PieceScratchBytes(c);
  InPieces(call.threads, c.count(), c.grain, c.work(), [&](int64_t begin, int64_t end) {
    auto* const workspace = static_cast<std::byte*>(call.scratch);
    c.With(begin, end, [&](xnn_operator_t op) {
      return RunConvolution(
          op, c.problem, call.inputs[0].as<float>() + c.FirstIn(begin),
          call.outputs[0].as<float>() + c.FirstOut(begin),
          scratch == 0 ? nullptr : workspace + static_cast<size_t>(begin / c.grain) * scratch);
    });
  });
}

// ---- softmax --------------------------------------------------------------------------------------

// Shorter rows, and fewer, are quicker in plain loops than in setting XNNPACK up.
constexpr int64_t kShortestRow = 64, kFewestSoftmaxRows = 8;

bool SupportsSoftmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  return call.attrs<SoftmaxAttributes>().axis == x.rank - 1 && x.dims[x.rank - 1] >= kShortestRow &&
         x.NumElements() / x.dims[x.rank - 1] >= kFewestSoftmaxRows && !OursAreWidest() &&
         XnnpackIsUsable() && IsDense(call) && IsFiniteOrNotThere(x);
}

void RunSoftmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t n = x.dims[x.rank - 1];
  const int64_t rows = x.NumElements() / n;
  XnnpackOperators::Key key;
  key.kind = 4;
  key.sizes[0] = n;
  InPieces(call.threads, rows, std::max<int64_t>(1, (1 << 14) / n), x.NumElements() * 16,
           [&](int64_t begin, int64_t end) {
             XnnpackOperators::Global().With(
                 key, {}, "softmax",
                 [&](xnn_operator_t* op) { return CreateSoftmax(static_cast<size_t>(n), op); },
                 [&](xnn_operator_t op) {
                   return RunSoftmaxRows(op, static_cast<size_t>(end - begin),
                                         static_cast<size_t>(n), x.as<float>() + begin * n,
                                         call.outputs[0].as<float>() + begin * n);
                 });
           });
}

const bool noted = [] {
  KernelRegistry::Global().AddNote("xnnpack", &XnnpackDescription);
  return true;
}();

const KernelRegistrar registrar({
    {OpCode::kMatMul, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunMatMul, nullptr,
     &SupportsMatMul},
    {OpCode::kConv2d, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunConv2d,
     &Conv2dScratchBytes, &SupportsConv2d},
    {OpCode::kSoftmax, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunSoftmax, nullptr,
     &SupportsSoftmax},
});

}  // namespace
}  // namespace tidepool::cpu
