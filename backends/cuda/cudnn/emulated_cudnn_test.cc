// What becomes of convolutions with each cuDNN that a machine may have: results are right with all of
// them, and the notes of `tidepool kernels` say what runs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/emulation/emulated_cudnn.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

// The one of TIDEPOOL_EMULATED_CUDNN in the environment.
EmulatedCudnn KindAskedFor() {
  const std::pair<const char*, EmulatedCudnn> kinds[] = {
      {"absent", EmulatedCudnn::kAbsent},
      {"present", EmulatedCudnn::kPresent},
      {"incomplete", EmulatedCudnn::kIncomplete},
      {"too_old", EmulatedCudnn::kTooOld},
      {"does_not_start", EmulatedCudnn::kDoesNotStart},
      {"wrong", EmulatedCudnn::kWrong},
      {"wrong_in_part", EmulatedCudnn::kWrongInPart},
      {"no_bf16", EmulatedCudnn::kNoBFloat16},
      {"no_strides", EmulatedCudnn::kNoStrides},
      {"refuses_late", EmulatedCudnn::kRefusesLate},
      {"fuses_nothing", EmulatedCudnn::kFusesNothing},
      {"relu_keeps_nan", EmulatedCudnn::kReluKeepsNan},
  };
  const char* name = std::getenv("TIDEPOOL_EMULATED_CUDNN");
  for (const auto& [kind_name, kind] : kinds) {
    if (name != nullptr && std::strcmp(name, kind_name) == 0) return kind;
  }
  std::fprintf(stderr,
               "TIDEPOOL_EMULATED_CUDNN: found %s, expected absent, present, incomplete, too_old, "
               "does_not_start, wrong, wrong_in_part, no_bf16, no_strides, refuses_late, "
               "fuses_nothing or relu_keeps_nan\n",
               name == nullptr ? "nothing" : name);
  std::exit(1);
}

const EmulatedCudnn kKind = KindAskedFor();
constexpr Device kDevice{DeviceType::kCuda, 0};

// Of the forward convolution and the two gradients, in the order of CheckAll.
long UsedOf(DType dtype) {
  switch (kKind) {
    case EmulatedCudnn::kPresent:
    case EmulatedCudnn::kNoStrides:
    case EmulatedCudnn::kRefusesLate:
    case EmulatedCudnn::kFusesNothing:
    case EmulatedCudnn::kReluKeepsNan:
      return 3;
    case EmulatedCudnn::kWrongInPart:
      return dtype == DType::kFloat16 ? 2 : 3;
    case EmulatedCudnn::kNoBFloat16:
      return dtype == DType::kBFloat16 ? 0 : 3;
    default:
      return 0;
  }
}
// Each kind and type is checked at its first convolution, by one of its own; what the library does not support is not. A forward
// one that is right is tried with a bias and a ReLU, and with a bias alone.
long ChecksOf(DType dtype) {
  switch (kKind) {
    case EmulatedCudnn::kPresent:
    case EmulatedCudnn::kNoStrides:  // by a plainer case
    case EmulatedCudnn::kRefusesLate:
    case EmulatedCudnn::kWrongInPart:
      return 5;
    case EmulatedCudnn::kFusesNothing:  // and is done in steps
    case EmulatedCudnn::kReluKeepsNan:
      return 4;
    case EmulatedCudnn::kWrong:
      return 3;
    case EmulatedCudnn::kNoBFloat16:
      return dtype == DType::kBFloat16 ? 0 : 5;
    default:
      return 0;
  }
}

const bool set = [] {
  SetEmulatedCudnn(kKind);
  cuda::Cublas::set_tf32(true);  // else filters' gradients of f32 are ours
  return true;
}();

NDArray Random(const Shape& shape, uint64_t stream) {
  return RandomUniform(shape, -1, 1, 5, stream);
}

double Difference(const NDArray& device, const NDArray& host) {
  const std::vector<double> a = Cast(device.To(Host()), DType::kFloat64).ToVector<double>();
  const std::vector<double> b = Cast(host, DType::kFloat64).ToVector<double>();
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Forward with bias and ReLU, and both gradients, here and there. Returns how many cuDNN ran.
long CheckAll(int64_t batch, const Conv2dAttributes& attributes, DType dtype = DType::kFloat32) {
  const double close = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 1e-5 : 0.05;
  Conv2dAttributes forward = attributes;
  forward.relu = true;
  const NDArray x = Cast(Random({batch, 9, 8, 8}, 1), dtype),
                w = Cast(Random({16, 3, 3, 8}, 2), dtype), bias = Cast(Random({16}, 3), dtype);
  const NDArray dy = Cast(Random(Conv2dOutputShape(x.shape(), w.shape(), attributes), 4), dtype);
  const NDArray on_x = x.To(kDevice), on_w = w.To(kDevice), on_bias = bias.To(kDevice),
                on_dy = dy.To(kDevice);
  const long before = EmulatedCudnnCalls();
  EXPECT_LT(Difference(Conv2d(on_x, on_w, &on_bias, forward), Conv2d(x, w, &bias, forward)), close);
  EXPECT_LT(Difference(Conv2dGradInput(on_dy, on_w, x.shape(), attributes),
                       Conv2dGradInput(dy, w, x.shape(), attributes)),
            close);
  NDArray dw = Cast(Random(w.shape(), 5), dtype);
  NDArray on_dw = dw.To(kDevice);
  Conv2dAttributes accumulate = attributes;
  accumulate.accumulate = true;
  Conv2dGradFilterInto(x, dy, dw, accumulate);
  Conv2dGradFilterInto(on_x, on_dy, on_dw, accumulate);
  EXPECT_LT(Difference(on_dw, dw), close * 10);
  return EmulatedCudnnCalls() - before;
}

TEST(EmulatedCudnnTest, ConvolutionsAreRightAndRunWhereTheNoteSays) {
  Conv2dAttributes same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(CheckAll(2, same, dtype), ChecksOf(dtype) + UsedOf(dtype)) << DTypeName(dtype);
    EXPECT_EQ(CheckAll(4, same, dtype), UsedOf(dtype)) << DTypeName(dtype);
  }
  Conv2dAttributes stride = same;
  stride.stride_width = 2, stride.stride_height = 3;
  EXPECT_EQ(CheckAll(2, stride), kKind == EmulatedCudnn::kNoStrides ? 0 : UsedOf(DType::kFloat32));
}

// Which has no fast kernel for them then.
TEST(EmulatedCudnnTest, FiltersGradientsOfF32AreOursWithoutTf32) {
  CheckAll(2, {});
  CheckAll(2, {}, DType::kFloat16);
  cuda::Cublas::set_tf32(false);
  const long used = CheckAll(2, {}), used_of_half = CheckAll(2, {}, DType::kFloat16);
  cuda::Cublas::set_tf32(true);
  EXPECT_EQ(CheckAll(2, {}), UsedOf(DType::kFloat32));
  EXPECT_EQ(used, std::max(0L, UsedOf(DType::kFloat32) - 1));
  EXPECT_EQ(used_of_half, UsedOf(DType::kFloat16));
}

TEST(EmulatedCudnnTest, WhatItDoesNotTakeOurKernelsRun) {
  Conv2dAttributes uneven;
  uneven.pad_top = 1;
  EXPECT_EQ(CheckAll(2, uneven), 0);
  EXPECT_EQ(CheckAll(2, {}, DType::kFloat64), 0);
}

TEST(EmulatedCudnnTest, ARefusalAtTheCallIsNoFailure) {
  const long first = CheckAll(3, {}), again = CheckAll(3, {});
  EXPECT_EQ(first, kKind == EmulatedCudnn::kRefusesLate ? 0 : UsedOf(DType::kFloat32));
  EXPECT_EQ(again, first);
}

// A bias is part of the library's kernel, and so is a ReLU that leaves NaN as they are, as ours does.
TEST(EmulatedCudnnTest, BiasAndReluAreNoKernelsOfTheirOwn) {
  Conv2dAttributes attributes;
  attributes.relu = true;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    CheckAll(2, {}, dtype);
    NDArray image = Random({2, 9, 8, 8}, 1);
    *image.mutable_data<float>() = std::numeric_limits<float>::quiet_NaN();
    const NDArray x = Cast(image, dtype), w = Cast(Random({16, 3, 3, 8}, 2), dtype),
                  bias = Cast(Random({16}, 3), dtype);
    const NDArray on_x = x.To(kDevice), on_w = w.To(kDevice), on_bias = bias.To(kDevice);
    Conv2d(on_x, on_w, &on_bias, attributes);
    EmulatedCuda& emulated = EmulatedCuda::Get();
    emulated.Finish();
    const int64_t before = emulated.counters().kernels;
    const NDArray z = Conv2d(on_x, on_w, &on_bias, attributes);
    emulated.Finish();
    const int64_t kernels = emulated.counters().kernels - before;
    if (kKind == EmulatedCudnn::kPresent) EXPECT_EQ(kernels, 1);  // the ReLU
    if (kKind == EmulatedCudnn::kReluKeepsNan) EXPECT_EQ(kernels, 0);
    if (kKind == EmulatedCudnn::kFusesNothing) EXPECT_EQ(kernels, 2);
    const std::vector<double> values = Cast(z.To(Host()), DType::kFloat64).ToVector<double>();
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_FALSE(std::isnan(values.back()));
  }
}

// Which is checked before it is used; with one for all, two streams would share what a handle works in.
TEST(EmulatedCudnnTest, EachQueueHasAHandleOfItsOwn) {
  CheckAll(2, {});
  const QueueScope scope(DeviceQueue::New(kDevice));
  const long first = CheckAll(2, {}), again = CheckAll(2, {});
  EXPECT_EQ(first, ChecksOf(DType::kFloat32) + again);
}

TEST(EmulatedCudnnTest, TheNoteSaysWhatRuns) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    CheckAll(2, {}, dtype);
  const std::string notes = KernelRegistry::Global().Notes();
  auto expect = [&](const std::string& text) {
    EXPECT_NE(notes.find(text), std::string::npos) << notes << "\nhas no\n" << text;
  };
  switch (kKind) {
    case EmulatedCudnn::kAbsent:
      return expect("cudnn: not used: no emulated libcudnn.so");
    case EmulatedCudnn::kPresent:
    case EmulatedCudnn::kRefusesLate:
    case EmulatedCudnn::kFusesNothing:
    case EmulatedCudnn::kReluKeepsNan:
      return expect("cudnn: version 91000");
    case EmulatedCudnn::kIncomplete:
      return expect("cudnn: not used: the library has no cudnnSetConvolutionGroupCount");
    case EmulatedCudnn::kTooOld:
      return expect("cudnn: not used: version 7605, expected 8 or 9");
    case EmulatedCudnn::kDoesNotStart:
      return expect("cudnn: not used: version 91000: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED");
    case EmulatedCudnn::kWrong:
      expect("cudnn: version 91000; not for conv2d bf16: a small case gave ");
      return expect("; not for conv2d_grad_filter f32: a small case gave ");
    case EmulatedCudnn::kWrongInPart:
      return expect("cudnn: version 91000; not for conv2d_grad_filter f16: a small case gave ");
    case EmulatedCudnn::kNoStrides:
    case EmulatedCudnn::kNoBFloat16:  // and so is not asked: calls of it are refused as they come
      return expect("cudnn: version 91000\n");
  }
}

}  // namespace
}  // namespace tidepool
