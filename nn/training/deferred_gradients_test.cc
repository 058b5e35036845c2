// Micro-batches whose gradients are accumulated and applied later: those of one large batch, and the
// ledger tells their bytes apart from those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/data/data_set.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

int64_t BytesOf(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }

NDArray Rows(const NDArray& of, int64_t begin, int64_t end) {
  return of.Slice(0, begin, end).Dup();
}

// Three parts of twelve examples, by a tape that adds to an array of the deferred kind.
TEST(DeferredGradients, OfATapeAreThoseOfOneLargeBatch) {
  const NDArray x = RandomUniform({12, 5}, -1, 1, DType::kFloat64, 1),
                y = RandomUniform({12, 2}, -1, 1, DType::kFloat64, 2);
  NDArray weights = RandomUniform({5, 2}, -1, 1, DType::kFloat64, 3), of_large = weights.Dup();
  const auto loss = [](const NDArray& w, const NDArray& in, const NDArray& out) {
    return Sum(Square(MatMul(in, w) - out)) * (1.0 / 12);
  };
  const int64_t deferred = BytesOf(MemoryKind::kGradientDeferred),
                standard = BytesOf(MemoryKind::kGradientStandard);
  {
    NDArray gradients =
        Zeros(weights.shape(), DType::kFloat64, Place::Heap(MemoryKind::kGradientDeferred));
    const auto bytes = static_cast<int64_t>(gradients.buffer()->bytes);
    EXPECT_GE(bytes, 5 * 2 * 8);
    Updater small({.kind = UpdaterKind::kSgd}, weights.shape(), Host(), DType::kFloat64, {}),
        large({.kind = UpdaterKind::kSgd}, weights.shape(), Host(), DType::kFloat64, {});
    for (int step = 0; step < 3; ++step) {
      FillInto(0, gradients);
      for (int64_t part = 0; part < 12; part += 4) {
        GradientTape tape;
        tape.Watch(weights, gradients, GradientWrite::kAdd);
        tape.Backward(loss(weights, Rows(x, part, part + 4), Rows(y, part, part + 4)));
        // They are of the kind that they were made as, between the parts too.
        EXPECT_EQ(BytesOf(MemoryKind::kGradientDeferred) - deferred, bytes);
        EXPECT_EQ(BytesOf(MemoryKind::kGradientStandard), standard);
      }
      GradientTape tape;
      tape.Watch(of_large);
      tape.Backward(loss(of_large, x, y));
      const NDArray whole = tape.Gradient(of_large);
      EXPECT_GT(BytesOf(MemoryKind::kGradientStandard), standard);
      EXPECT_LT(Max(Abs(whole - gradients)).Item<double>(), 1e-14);
      small.Apply(gradients, weights);
      large.Apply(whole, of_large);
    }
    EXPECT_LT(Max(Abs(weights - of_large)).Item<double>(), 1e-14);
  }
  EXPECT_EQ(BytesOf(MemoryKind::kGradientDeferred), deferred);
  EXPECT_EQ(BytesOf(MemoryKind::kGradientStandard), standard);
}

// The same around a trainer, in every mode: the network's own gradients, of one part, are standard.
TEST(DeferredGradients, OfATrainersPartsAreAppliedAsThoseOfOneLargeBatch) {
  const int64_t deferred = BytesOf(MemoryKind::kGradientDeferred),
                standard = BytesOf(MemoryKind::kGradientStandard);
  for (const WorkspaceMode mode : {WorkspaceMode::kNone, WorkspaceMode::kSingle,
                                   WorkspaceMode::kSeparate, WorkspaceMode::kEnabled}) {
    SCOPED_TRACE(static_cast<int>(mode));
    NetworkOptions options;
    options.seed = 5;
    options.mode = mode;
    options.dtype = DType::kFloat64;
    const auto make = [&] {
      return Network(NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), Dense(3)}),
                     options);
    };
    Network large = make(), small = make();
    Trainer of_large(large, Adam()), of_small(small, Adam());
    const NDArray x = RandomUniform({12, 6}, -1, 1, DType::kFloat64, 1),
                  labels = RandomIntegers({12}, 0, 3, 2);
    const int64_t of_networks = BytesOf(MemoryKind::kGradientStandard);
    EXPECT_EQ(of_networks - standard, 2 * static_cast<int64_t>(small.gradients().buffer()->bytes));
    NDArray sum = Zeros(small.gradients().shape(), DType::kFloat64,
                        Place::Heap(MemoryKind::kGradientDeferred));
    for (int step = 0; step < 3; ++step) {
      FillInto(0, sum);
      for (int64_t part = 0; part < 12; part += 4) {
        const WorkspaceScope scope(small.training_workspace());
        of_small.ComputeGradients(
            MultiDataSet({Rows(x, part, part + 4)}, {Rows(labels, part, part + 4)}));
        sum += small.gradients() * (1.0 / 3);
        EXPECT_EQ(BytesOf(MemoryKind::kGradientDeferred) - deferred,
                  static_cast<int64_t>(sum.buffer()->bytes));
        EXPECT_EQ(BytesOf(MemoryKind::kGradientStandard), of_networks);
      }
      EXPECT_EQ(of_small.steps(), step);  // nothing is applied yet
      {
        const WorkspaceScope scope(small.training_workspace());
        NDArray own = small.gradients();
        CopyInto(sum, own);
        EXPECT_TRUE(of_small.Update());
      }
      of_large.Step([&] { return MultiDataSet({x.Dup()}, {labels.Dup()}); });
    }
    EXPECT_LT(Max(Abs(small.parameters() - large.parameters())).Item<double>(), 1e-12);
  }
  EXPECT_EQ(BytesOf(MemoryKind::kGradientDeferred), deferred);
  EXPECT_EQ(BytesOf(MemoryKind::kGradientStandard), standard);
}

}  // namespace
}  // namespace tidepool::nn
