// Cross-entropy of softmax, by label or by target distribution, with gradients. Rows of dense
// [rows, classes]; a gradient may lie over the probabilities.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/row_exponentials.h"
#include "tidepool/backends/cuda/common/rows.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

template <typename T, int kWidth, bool kOne>
__global__ void __launch_bounds__(kMostRowThreads, (kRowBlocks<T, kOne>))
    LabelLossKernel(Rows rows, const T* logits, const int64_t* labels, T* loss, T* probabilities) {
  using W = Compute<T>;
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  const int64_t label = labels[at.row];
  const bool has_label = label >= 0 && label < rows.size;
  const W logit = has_label ? Wide(logits[first + label]) : W{0};
  RowPieces<T, kWidth, kOne> pieces(at, logits + first, rows.size, -Infinity<W>());
  const RowExponentials<W> of_row = ExponentialsOfRow<true>(at, pieces);
  if (!at.real) return;
  if (at.lane == 0) {
    loss[at.row] = Narrow<T>(has_label ? Log(of_row.sum) - (logit - of_row.largest) : W{0});
  }
  const W inverse = 1 / of_row.sum;
  pieces.Each(
      [&](int64_t begin, int count) {
        RowPart<T, kWidth>::Store(at, probabilities + first + begin, count, [&](int u) {
          const W value = pieces.part.value[u];
          return Narrow<T>((kOne ? value : Exp(value - of_row.largest)) * inverse);
        });
      },
      true);
}

// A target of zero adds nothing, whatever the logit.
template <typename T, int kWidth, bool kOne>
__global__ void __launch_bounds__(kMostRowThreads, (kRowBlocks<T, kOne>))
    TargetLossKernel(Rows rows, const T* logits, const T* targets, T* loss, T* probabilities) {
  using W = Compute<T>;
  __shared__ W shared[32];
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  RowPieces<T, kWidth, kOne> pieces(at, logits + first, rows.size, -Infinity<W>());
  const RowExponentials<W> of_row = ExponentialsOfRow<false>(at, pieces);
  const W inverse = 1 / of_row.sum, log_sum = Log(of_row.sum);
  W sum = 0;
  pieces.Each(
      [&](int64_t begin, int count) {
        W of_piece = 0;
        RowPart<T, kWidth>::Store(
            at, probabilities + first + begin, at.real ? count : 0,
            [&](int u, T its_target) {
              const W target = Wide(its_target), below = pieces.part.value[u] - of_row.largest;
              if (target != 0) of_piece += target * (log_sum - below);
              return Narrow<T>(Exp(below) * inverse);
            },
            targets + first + begin);
        sum += of_piece;
      },
      true);
  sum = MergeTeam(at, sum, shared, AddUp());
  if (at.real && at.lane == 0) loss[at.row] = Narrow<T>(sum);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    LabelGradKernel(int64_t accesses, int64_t classes, const T* probabilities,
                    const int64_t* labels, T* gradient, Compute<T> scale) {
  const bool aligned = kWidth > 1 && IsAligned(probabilities) && IsAligned(gradient);
  for (int64_t n = GlobalThread(); n < accesses; n += GlobalThreads()) {
    const int64_t i = n * kWidth, row = Quotient(i, classes);
    const int64_t label = labels[row] - (i - row * classes);
    const Vector<T, kWidth> p = LoadAccess<kWidth>(probabilities + i, aligned);
    Vector<T, kWidth> result;
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      const Compute<T> value = Wide(p.lane[u]);
      result.lane[u] = Narrow<T>(scale * (label == u ? value - 1 : value));
    }
    StoreAccess(gradient + i, aligned, result);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMostRowThreads, kRowBlocks<T>)
    TargetGradKernel(Rows rows, const T* probabilities, const T* targets, T* gradient,
                     Compute<T> scale) {
  using W = Compute<T>;
  using Part = RowPart<T, kWidth>;
  __shared__ W shared[32];
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  W sum = 0;
  Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
    W of_piece = 0;
    Part::ForEachOf(
        at, count, [&](int, T target) { of_piece += Wide(target); }, targets + first + begin);
    sum += of_piece;
  });
  const W total = MergeTeam(at, sum, shared, AddUp());
  if (!at.real) return;
  Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
    Part::Store(
        at, gradient + first + begin, count,
        [&](int, T p, T target) { return Narrow<T>(scale * (Wide(p) * total - Wide(target))); },
        probabilities + first + begin, targets + first + begin);
  });
}

template <typename T>
Rows RowsOf(const TensorRef& x) {
  return Rows::Of<T>(x.dims[0], x.dims[1]);
}

template <typename T>
void SoftmaxCrossEntropy(const KernelCall& call) {
  const Rows rows = RowsOf<T>(call.inputs[0]);
  if (rows.count == 0) return;
  WithRowKind<T>(rows, [&](auto width, auto one) {
    Launch(LabelLossKernel<T, width(), one()>, rows.blocks(), rows.threads(), 0, StreamOf(call),
           rows, call.inputs[0].as<T>(), call.inputs[1].as<int64_t>(), call.outputs[0].as<T>(),
           call.outputs[1].as<T>());
  });
}

template <typename T>
void DenseCrossEntropy(const KernelCall& call) {
  const Rows rows = RowsOf<T>(call.inputs[0]);
  if (rows.count == 0) return;
  WithRowKind<T>(rows, [&](auto width, auto one) {
    Launch(TargetLossKernel<T, width(), one()>, rows.blocks(), rows.threads(), 0, StreamOf(call),
           rows, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>(),
           call.outputs[1].as<T>());
  });
}

template <typename T>
void SoftmaxCrossEntropyGrad(const KernelCall& call) {
  const TensorRef& gradient = call.outputs[0];
  const int64_t count = gradient.NumElements();
  if (count == 0) return;
  WithRowWidth<T>(RowsOf<T>(gradient), [&](auto width) {
    const int64_t accesses = count / width();
    Launch(LabelGradKernel<T, width()>, BlocksFor(accesses, kRowThreads), kRowThreads, 0,
           StreamOf(call), accesses, gradient.dims[1], call.inputs[0].as<T>(),
           call.inputs[1].as<int64_t>(), gradient.as<T>(),
           static_cast<Compute<T>>(call.attrs<CrossEntropyGradAttributes>().scale));
  });
}

template <typename T>
void DenseCrossEntropyGrad(const KernelCall& call) {
  const Rows rows = RowsOf<T>(call.outputs[0]);
  if (rows.count == 0) return;
  WithRowWidth<T>(rows, [&](auto width) {
    Launch(TargetGradKernel<T, width()>, rows.blocks(), rows.threads(), 0, StreamOf(call), rows,
           call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>(),
           static_cast<Compute<T>>(call.attrs<LossGradAttributes>().scale));
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropy, SoftmaxCrossEntropy),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropyGrad, SoftmaxCrossEntropyGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kDenseCrossEntropy, DenseCrossEntropy),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kDenseCrossEntropyGrad, DenseCrossEntropyGrad),
});

}  // namespace
}  // namespace tidepool::cuda
