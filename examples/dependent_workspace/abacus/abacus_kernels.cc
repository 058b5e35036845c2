// A dozen kernels of the abacus, f32 all of them: those that the forward pass of LeNet spends its
// time in, and arithmetic. What is missing runs on the host. Compute is plain loops; what matters
// here is where and when they run.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "abacus/abacus_device.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/elementwise_loop.h"
#include "tidepool/ndarray/kernel/kept_call.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace abacus {
namespace {

using tidepool::BroadcastStrides;
using tidepool::Conv2dAttributes;
using tidepool::DType;
using tidepool::ForEachElement;
using tidepool::ForEachRun;
using tidepool::KeptCall;
using tidepool::KernelCall;
using tidepool::kMaxRank;
using tidepool::MatMulAttributes;
using tidepool::OpCode;
using tidepool::Pool2dAttributes;
using tidepool::TensorRef;

// The dispatcher's side: queues kRun, which finds its operands on the card. What the call points to
// is gone by then.
template <void (*kRun)(const KernelCall&)>
void Queue(const KernelCall& call) {
  AbacusDevice& device = *AbacusDevice::Find(call.device.index);
  auto kept = std::make_shared<KeptCall>(call);
  device.QueueKernel(kept->Extents(), [kept, &device] {
    kept->TranslateAddresses([&](void* address) { return device.OnCard(address); });
    kRun(kept->call());
  });
}

// ---- elementwise: any strides, with broadcasting ----------------------------------------

void Add(const KernelCall& call) {
  ForEachElement<float, 2>(call, [](float x, float y, float& z) { z = x + y; });
}
void Subtract(const KernelCall& call) {
  ForEachElement<float, 2>(call, [](float x, float y, float& z) { z = x - y; });
}
void Multiply(const KernelCall& call) {
  ForEachElement<float, 2>(call, [](float x, float y, float& z) { z = x * y; });
}
void Square(const KernelCall& call) {
  ForEachElement<float, 1>(call, [](float x, float& z) { z = x * x; });
}
void Relu(const KernelCall& call) {
  ForEachElement<float, 1>(call, [](float x, float& z) { z = x <= 0 ? 0 : x; });
}
void ReluGrad(const KernelCall& call) {
  ForEachElement<float, 2>(
      call, [](float z, float gradient, float& result) { result = z > 0 ? gradient : 0; });
}
void Fill(const KernelCall& call) {
  const auto value = static_cast<float>(call.attrs<tidepool::FillAttributes>().value);
  ForEachElement<float, 0>(call, [=](float& z) { z = value; });
}

// From f32, which is what a copy is registered for, to any type.
void Copy(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &z = call.outputs[0];
  const tidepool::ConvertRun convert = tidepool::ConverterOf(x.dtype, z.dtype);
  const auto width = static_cast<int64_t>(tidepool::DTypeBytes(z.dtype));
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[1]);
  ForEachRun<2>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  convert(x.as<float>() + offset[0], stride[0],
                          z.as<std::byte>() + offset[1] * width, stride[1], count);
                });
}

// The step's learning rate comes in the attributes, or in an array of the device.
void SgdUpdate(const KernelCall& call) {
  const auto& a = call.attrs<tidepool::SgdAttributes>();
  const tidepool::UpdateNumbers numbers = tidepool::NumbersOf<tidepool::SgdAttributes>(call);
  if (numbers.is_skipped()) return;
  const auto terms = tidepool::GradientTerms<float>::Of(a, numbers.scale);
  ForEachElement<float, 1>(call, [&](float gradient, float& parameter) {
    parameter -= static_cast<float>(numbers.rate) * terms.Gradient(gradient, parameter);
  });
}

// ---- dense --------------------------------------------------------------------------

struct Matrix {
  const float* data;
  int64_t row, column;  // strides
};

// z[m, n] = x[m, inner] y[inner, n] (+ bias[n]) (+ z), row by row.
void Product(const Matrix& x, const Matrix& y, const float* bias, bool add, bool relu, int64_t m,
             int64_t n, int64_t inner, float* z, int64_t z_row) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = add ? z[i * z_row + j] : 0;
      const float* left = x.data + i * x.row;
      const float* right = y.data + j * y.column;
      for (int64_t k = 0; k < inner; ++k)
        sum += static_cast<double>(left[k * x.column]) * right[k * y.row];
      if (bias != nullptr) sum += bias[j];
      z[i * z_row + j] = relu && sum <= 0 ? 0 : static_cast<float>(sum);
    }
  }
}

const float* BiasOf(const KernelCall& call) {
  return call.inputs[2].present ? call.inputs[2].as<float>() : nullptr;
}

void MatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef &x = call.inputs[0], &y = call.inputs[1], &z = call.outputs[0];
  const auto matrix = [](const TensorRef& ref, int64_t offset, bool transposed) {
    const int64_t row = ref.strides[ref.rank - 2], column = ref.strides[ref.rank - 1];
    return Matrix{ref.as<float>() + offset, transposed ? column : row, transposed ? row : column};
  };
  const int64_t m = z.dims[z.rank - 2], n = z.dims[z.rank - 1],
                inner = x.dims[x.rank - (a.transpose_x ? 2 : 1)];
  const int lead = z.rank - 2;
  int64_t strides[3][kMaxRank];
  BroadcastStrides(x.rank - 2, x.dims, x.strides, lead, strides[0]);
  BroadcastStrides(y.rank - 2, y.dims, y.strides, lead, strides[1]);
  BroadcastStrides(lead, z.dims, z.strides, lead, strides[2]);
  ForEachRun<3>(
      lead, z.dims, strides, [&](const int64_t* offset, int64_t count, const int64_t* stride) {
        for (int64_t i = 0; i < count; ++i) {
          Product(matrix(x, offset[0] + i * stride[0], a.transpose_x),
                  matrix(y, offset[1] + i * stride[1], a.transpose_y), BiasOf(call), a.accumulate,
                  a.relu, m, n, inner, z.as<float>() + offset[2] + i * stride[2], n);
        }
      });
}

// One image's windows as rows; the dispatcher takes it from the current workspace of the device.
size_t ConvScratch(const KernelCall& call) {
  const TensorRef &filter = call.inputs[1], &output = call.outputs[0];
  return static_cast<size_t>(output.dims[1] * output.dims[2] * filter.dims[1] * filter.dims[2] *
                             filter.dims[3]) *
         sizeof(float);
}

void Conv2d(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const TensorRef &input = call.inputs[0], &filter = call.inputs[1], &output = call.outputs[0];
  const int64_t height = input.dims[1], width = input.dims[2], channels = input.dims[3];
  const int64_t out_height = output.dims[1], out_width = output.dims[2], filters = output.dims[3];
  const int64_t depth = filter.dims[3], inner = filter.dims[1] * filter.dims[2] * depth,
                per_group = filters / a.groups;
  auto* const rows = static_cast<float*>(call.scratch);
  for (int64_t image = 0; image < output.dims[0]; ++image) {
    const float* const pixels = input.as<float>() + image * height * width * channels;
    float* const result = output.as<float>() + image * out_height * out_width * filters;
    for (int64_t group = 0; group < a.groups; ++group) {
      float* next = rows;
      for (int64_t i = 0; i < out_height; ++i) {
        for (int64_t j = 0; j < out_width; ++j) {
          for (int64_t r = 0; r < filter.dims[1]; ++r) {
            for (int64_t s = 0; s < filter.dims[2]; ++s, next += depth) {
              const int64_t row = i * a.stride_height + r * a.dilation_height - a.pad_top;
              const int64_t column = j * a.stride_width + s * a.dilation_width - a.pad_left;
              if (row < 0 || row >= height || column < 0 || column >= width) {
                std::fill_n(next, depth, 0.0f);
              } else {
                std::copy_n(pixels + (row * width + column) * channels + group * depth, depth,
                            next);
              }
            }
          }
        }
      }
      const float* const bias = BiasOf(call);
      Product({rows, inner, 1}, {filter.as<float>() + group * per_group * inner, 1, inner},
              bias != nullptr ? bias + group * per_group : nullptr, false, a.relu,
              out_height * out_width, per_group, inner, result + group * per_group, filters);
    }
  }
}

// Padding times an infinite or NaN weight would be NaN; the host leaves padding out.
bool SupportsConv2d(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  return a.pad_top + a.pad_bottom + a.pad_left + a.pad_right == 0;
}

void MaxPool2d(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef &input = call.inputs[0], &output = call.outputs[0];
  const int64_t height = input.dims[1], width = input.dims[2], channels = input.dims[3];
  float* next = output.as<float>();
  for (int64_t n = 0; n < output.dims[0]; ++n) {
    for (int64_t i = 0; i < output.dims[1]; ++i) {
      for (int64_t j = 0; j < output.dims[2]; ++j) {
        const int64_t row = i * a.stride_height - a.pad_top,
                      column = j * a.stride_width - a.pad_left;
        const int64_t row_end = std::min(row + a.kernel_height, height);
        const int64_t column_end = std::min(column + a.kernel_width, width);
        for (int64_t c = 0; c < channels; ++c) {
          bool first = true;
          float largest = 0;
          for (int64_t r = std::max<int64_t>(row, 0); r < row_end; ++r) {
            for (int64_t s = std::max<int64_t>(column, 0); s < column_end; ++s) {
              const float x = input.as<float>()[((n * height + r) * width + s) * channels + c];
              if (first || x > largest || x != x) largest = x;  // NaN is the largest
              first = false;
            }
          }
          *next++ = largest;
        }
      }
    }
  }
}

// ---- registration ---------------------------------------------------------------------

tidepool::Kernel Dense(OpCode op, void (*run)(const KernelCall&)) {
  return {.op = op,
          .device = kAbacus,
          .dtype = DType::kFloat32,
          .provider = "abacus",
          .priority = 10,
          .run = run};
}
tidepool::Kernel Strided(OpCode op, void (*run)(const KernelCall&)) {
  tidepool::Kernel kernel = Dense(op, run);
  kernel.strided = true;
  return kernel;
}
tidepool::Kernel Convolution() {
  tidepool::Kernel kernel = Dense(OpCode::kConv2d, &Queue<&Conv2d>);
  kernel.scratch_bytes = &ConvScratch;
  kernel.supports = &SupportsConv2d;
  return kernel;
}

const tidepool::KernelRegistrar registrar({
    Strided(OpCode::kFill, &Queue<&Fill>),
    Strided(OpCode::kCopy, &Queue<&Copy>),
    Strided(OpCode::kAdd, &Queue<&Add>),
    Strided(OpCode::kSubtract, &Queue<&Subtract>),
    Strided(OpCode::kMultiply, &Queue<&Multiply>),
    Strided(OpCode::kSquare, &Queue<&Square>),
    Strided(OpCode::kRelu, &Queue<&Relu>),
    Strided(OpCode::kReluGrad, &Queue<&ReluGrad>),
    Strided(OpCode::kSgdUpdate, &Queue<&SgdUpdate>),
    Dense(OpCode::kMatMul, &Queue<&MatMul>),
    Dense(OpCode::kMaxPool2d, &Queue<&MaxPool2d>),
    Convolution(),
});

// Shown by `tidepool kernels`.
const bool noted = [] {
  tidepool::KernelRegistry::Global().AddNote(
      "abacus", [] { return std::string("256 MiB, one queue of kernels"); });
  return true;
}();

}  // namespace
}  // namespace abacus
