// Scratch of the CPU's kernels for many tiny examples: of threads or of blocks, not of each
// example. A few bytes of a network's configuration make many examples of one (time_distributed),
// and no budget counts scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {
namespace {

constexpr int64_t kExamples = 16384;
constexpr int kThreads = 2;

struct Example {
  OpCode op;
  std::vector<Shape> inputs, outputs;  // an empty shape: an operand that is absent
  const void* attributes;
};

// Of dense operands, without their elements.
class Operands {
 public:
  Operands(const std::vector<Shape>& shapes, DType dtype)
      : shapes_(shapes), strides_(shapes.size()) {
    for (size_t i = 0; i < shapes_.size(); ++i) {
      TensorRef ref;
      ref.dtype = dtype;
      ref.present = shapes_[i].rank() > 0;
      ref.rank = shapes_[i].rank();
      ref.dims = shapes_[i].dims();
      ref.strides = strides_[i].data();
      int64_t stride = 1;
      for (int axis = ref.rank - 1; axis >= 0; --axis)
        strides_[i][axis] = stride, stride *= ref.dims[axis];
      if (ref.present) bytes += stride * static_cast<int64_t>(DTypeBytes(dtype));
      refs.push_back(ref);
    }
  }
  std::vector<TensorRef> refs;
  int64_t bytes = 0;

 private:
  std::vector<Shape> shapes_;
  std::vector<std::array<int64_t, kMaxRank>> strides_;
};

const MatMulAttributes kProduct;
const Conv2dAttributes kConvolution;
const Conv2dAttributes kDepthwise = [] {
  Conv2dAttributes a;
  a.groups = 2;
  return a;
}();
const Conv3dAttributes kConvolution3d;
const ResizeAttributes kResize;
const CtcAttributes kCtc;
const NormalizationAttributes kNormalization;
const GroupNormAttributes kOneGroup, kTwoGroups{1e-5, 2};
const AttentionAttributes kAttention;
const SortAttributes kSort{1};
const AxisAttributes kAxis{1};
const ReduceAttributes kOfRows{2};
const ReduceAttributes kOfColumns{1};

std::vector<Example> Examples() {
  const int64_t n = kExamples;
  std::vector<Example> all = {
      {OpCode::kMatMul, {{n, 2, 3}, {n, 3, 2}, {}}, {{n, 2, 2}}, &kProduct},
      {OpCode::kMatMul, {{n, 3}, {3, 2}, {}}, {{n, 2}}, &kProduct},
      {OpCode::kConv3d, {{n, 2, 2, 2, 1}, {1, 1, 1, 1, 1}, {}}, {{n, 2, 2, 2, 1}}, &kConvolution3d},
      {OpCode::kConv3dGradInput,
       {{n, 2, 2, 2, 1}, {1, 1, 1, 1, 1}},
       {{n, 2, 2, 2, 1}},
       &kConvolution3d},
      {OpCode::kConv3dGradFilter,
       {{n, 2, 2, 2, 1}, {n, 2, 2, 2, 1}},
       {{1, 1, 1, 1, 1}},
       &kConvolution3d},
      {OpCode::kResize2d, {{n, 1, 1, 4}}, {{n, 2, 2, 4}}, &kResize},
      {OpCode::kResize2dGrad, {{n, 2, 2, 4}}, {{n, 1, 1, 4}}, &kResize},
      {OpCode::kCtcLoss, {{n, 2, 3}, {n, 1}, {n}, {n}}, {{n}}, &kCtc},
      {OpCode::kCtcLossGrad, {{n, 2, 3}, {n, 1}, {n}, {n}, {n}}, {{n, 2, 3}}, &kCtc},
      {OpCode::kAttention,
       {{n, 1, 1, 4}, {n, 1, 1, 4}, {n, 1, 1, 4}, {}},
       {{n, 1, 1, 4}, {n, 1, 1}},
       &kAttention},
      {OpCode::kAttentionGrad,
       {{n, 1, 1, 4}, {n, 1, 1, 4}, {n, 1, 1, 4}, {}, {n, 1, 1, 4}, {n, 1, 1}, {n, 1, 1, 4}},
       {{n, 1, 1, 4}, {n, 1, 1, 4}, {n, 1, 1, 4}},
       &kAttention},
      {OpCode::kSort, {{n, 4}}, {{n, 4}}, &kSort},
      {OpCode::kArgSort, {{n, 4}}, {{n, 4}}, &kSort},
      {OpCode::kTopK, {{n, 4}}, {{n, 2}, {n, 2}}, &kAxis},
  };
  for (const int64_t width : {1, 2, 16, 256}) {
    const Shape x{n, width}, of_channels{width}, of_rows{n};
    all.push_back({OpCode::kBatchNorm,
                   {x, of_channels, of_channels},
                   {x, of_channels, of_channels},
                   &kNormalization});
    all.push_back({OpCode::kBatchNormInference,
                   {x, of_channels, of_channels, of_channels, of_channels},
                   {x},
                   &kNormalization});
    all.push_back({OpCode::kBatchNormGrad,
                   {x, of_channels, of_channels, of_channels, x},
                   {x, of_channels, of_channels},
                   &kNormalization});
    all.push_back({OpCode::kLayerNormGrad,
                   {x, of_channels, of_rows, of_rows, x},
                   {x, of_channels, of_channels},
                   &kNormalization});
    all.push_back(
        {OpCode::kRmsNormGrad, {x, of_channels, of_rows, x}, {x, of_channels}, &kNormalization});
    for (const Shape& of_examples : {x, Shape{n, 2, 2, width}}) {
      for (const GroupNormAttributes* const a : {&kOneGroup, &kTwoGroups}) {
        if (width % a->groups != 0) continue;
        const Shape of_groups{n, a->groups};
        all.push_back({OpCode::kGroupNorm,
                       {of_examples, of_channels, of_channels},
                       {of_examples, of_groups, of_groups},
                       a});
        all.push_back({OpCode::kGroupNormGrad,
                       {of_examples, of_channels, of_groups, of_groups, of_examples},
                       {of_examples, of_channels, of_channels},
                       a});
      }
    }
    for (int code = 0; code < kOpCodes; ++code) {
      const auto op = static_cast<OpCode>(code);
      if (Info(op).attributes != AttributesType::Of<ReduceAttributes>()) continue;
      all.push_back({op, {x}, {{n, 1}}, &kOfRows});
      all.push_back({op, {x}, {{1, width}}, &kOfColumns});
    }
  }
  for (const Conv2dAttributes* const a : {&kConvolution, &kDepthwise}) {
    const Shape x{n, 3, 3, 2}, filter{4, 3, 3, 2 / a->groups}, z{n, 1, 1, 4};
    all.push_back({OpCode::kConv2d, {x, filter, {}}, {z}, a});
    all.push_back({OpCode::kConv2dGradInput, {z, filter}, {x}, a});
    all.push_back({OpCode::kConv2dGradFilter, {x, z}, {filter}, a});
  }
  return all;
}

TEST(Scratch, IsNotOfEachExample) {
  std::set<std::string> measured;
  for (const Example& example : Examples()) {
    for (int type = 0; type < kDTypes; ++type) {
      const auto dtype = static_cast<DType>(type);
      const Operands inputs(example.inputs, dtype), outputs(example.outputs, dtype);
      KernelCall call{example.op, inputs.refs, outputs.refs, example.attributes};
      call.threads = kThreads;
      for (const Kernel& kernel : KernelRegistry::Find(example.op, DeviceType::kHost, dtype)) {
        if (kernel.scratch_bytes == nullptr ||
            (kernel.supports != nullptr && !kernel.supports(call)))
          continue;
        measured.insert(Info(example.op).name);
        std::string shapes;
        for (const Shape& shape : example.inputs) shapes += " " + shape.ToString();
        // An element of a smaller type may be widened, and a place of one sorted is of 8 bytes.
        const int64_t width = 8 / static_cast<int64_t>(std::min<size_t>(8, DTypeBytes(dtype)));
        EXPECT_LE(static_cast<int64_t>(kernel.scratch_bytes(call)),
                  2 * width * (inputs.bytes + outputs.bytes) + kThreads * (int64_t{1} << 20))
            << kernel.provider << " " << Info(example.op).name << " " << DTypeName(dtype) << shapes;
      }
    }
  }
  // A new kernel with scratch gets an example above. Those of 16-bit floats are those of f32
  // between two conversions.
  for (int code = 0; code < kOpCodes; ++code) {
    for (int type = 0; type < kDTypes; ++type) {
      if (DTypeBytes(static_cast<DType>(type)) == 2 && IsFloating(static_cast<DType>(type)))
        continue;
      for (const Kernel& kernel : KernelRegistry::Find(static_cast<OpCode>(code), DeviceType::kHost,
                                                       static_cast<DType>(type))) {
        if (kernel.scratch_bytes == nullptr || std::string(kernel.provider) == "xnnpack") continue;
        EXPECT_TRUE(measured.contains(Info(kernel.op).name))
            << kernel.provider << " " << Info(kernel.op).name;
      }
    }
  }
}

// Of threads, and never less for one example more, which who looks for the largest batch goes by.
TEST(Scratch, OfGroupNormGrowsWithTheBatchAndIsWorthSmallExamples) {
  for (const Shape& example : {Shape{4}, Shape{3, 3, 8}, Shape{40, 2}, Shape{64, 64, 32}}) {
    for (const int threads : {1, 2, 24}) {
      int64_t before[2] = {0, 0};
      for (int64_t n = 1; n <= 200; ++n) {
        std::vector<int64_t> dims = {n};
        dims.insert(dims.end(), example.span().begin(), example.span().end());
        const Shape x(dims), of_channels{example[example.rank() - 1]}, of_groups{n, 2};
        const Example examples[] = {{OpCode::kGroupNorm,
                                     {x, of_channels, of_channels},
                                     {x, of_groups, of_groups},
                                     &kTwoGroups},
                                    {OpCode::kGroupNormGrad,
                                     {x, of_channels, of_groups, of_groups, x},
                                     {x, of_channels, of_channels},
                                     &kTwoGroups}};
        for (int i = 0; i < 2; ++i) {
          const Operands inputs(examples[i].inputs, DType::kFloat32),
              outputs(examples[i].outputs, DType::kFloat32);
          KernelCall call{examples[i].op, inputs.refs, outputs.refs, examples[i].attributes};
          call.threads = threads;
          for (const Kernel& kernel :
               KernelRegistry::Find(call.op, DeviceType::kHost, DType::kFloat32)) {
            if (std::string(kernel.provider) != "cpu") continue;
            const auto bytes = static_cast<int64_t>(kernel.scratch_bytes(call));
            EXPECT_GE(bytes, before[i]) << x.ToString() << ", " << threads << " threads";
            before[i] = bytes;
            if (example.NumElements() == 4) {
              EXPECT_LE(bytes, 16 * 1024) << x.ToString() << ", " << threads << " threads";
            }
          }
        }
      }
      EXPECT_GT(before[1], 0);
    }
  }
}

}  // namespace
}  // namespace tidepool
