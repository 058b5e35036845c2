#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::cuda {
namespace {

class Pooling : public CudaKernelTest {};

// Paddings, strides, overlapping windows, ties and NaN are drawn by the contract's generator.
TEST_F(Pooling, RandomCasesOfTheMaximum) {
  CheckRandomCases(OpCode::kMaxPool2d, 40);
  CheckRandomCases(OpCode::kMaxPool2dGrad, 60);
}
TEST_F(Pooling, RandomCasesOfTheAverage) {
  CheckRandomCases(OpCode::kAveragePool2d, 40);
  CheckRandomCases(OpCode::kAveragePool2dGrad, 40);
}

// Channels of one access and several, windows apart with pixels between them and behind the last one, and
// more pixels in a window than a byte has numbers for.
TEST_F(Pooling, WindowsApartOverlappingAndLarge) {
  struct Geometry {
    int64_t size, kernel, stride, pad;
  };
  for (const Geometry g :
       {Geometry{9, 2, 2, 0}, {11, 2, 3, 1}, {10, 3, 2, 1}, {9, 3, 1, 1}, {24, 17, 2, 3}}) {
    for (const int64_t channels : {3, 8, 24}) {
      if (g.kernel > 10 && channels > 8) continue;
      for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
        Pool2dAttributes a;
        a.kernel_height = a.kernel_width = g.kernel;
        a.stride_height = a.stride_width = g.stride;
        a.pad_top = a.pad_bottom = a.pad_left = a.pad_right = g.pad;
        a.count_include_pad = channels % 2 == 0;
        const int64_t out = (g.size + 2 * g.pad - g.kernel) / g.stride + 1;
        const Shape image{2, g.size, g.size, channels}, result{2, out, out, channels};
        OpCase c{OpCode::kMaxPool2dGrad,
                 dtype,
                 {RandomOperand(dtype, image, 1), RandomOperand(dtype, result, 2),
                  RandomOperand(dtype, result, 3)},
                 {ResultOperand(dtype, image)},
                 {},
                 static_cast<double>(g.kernel * g.kernel)};
        c.attributes = a;
        CheckCase(c);
        a.relu_grad = true;
        c.attributes = a;
        CheckCase(c);
        c.op = OpCode::kAveragePool2dGrad;
        c.inputs = {c.inputs[2]};
        CheckCase(c);
        for (const OpCode forward : {OpCode::kMaxPool2d, OpCode::kAveragePool2d}) {
          OpCase f{forward,
                   dtype,
                   {RandomOperand(dtype, image, 1)},
                   {ResultOperand(dtype, result)},
                   {},
                   static_cast<double>(g.kernel * g.kernel)};
          f.attributes = a;
          CheckCase(f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::cuda
