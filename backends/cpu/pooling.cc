// Pooling of NHWC images and its gradients, an image a task.
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

PoolGeometry Geometry(const TensorRef& x, const TensorRef& y, const Pool2dAttributes& a) {
  return {x.dims[1],       x.dims[2],       x.dims[3],      y.dims[1], y.dims[2],
          a.kernel_height, a.kernel_width,  a.stride_height, a.stride_width, a.pad_top,
          a.pad_left};
}

// body(offset into x, offset into y) for each image.
template <typename Body>
void ForEachImage(const KernelCall& call, const TensorRef& x, const PoolGeometry& g, Body body) {
  const int64_t in_image = g.in_height * g.in_width * g.channels;
  const int64_t out_image = g.out_height * g.out_width * g.channels;
  ParallelFor(call.threads, x.dims[0], 1, x.NumElements(), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) body(image * in_image, image * out_image);
  });
}

void RunMaxPool(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.outputs[0];
  const PoolGeometry g = Geometry(x, y, call.attrs<Pool2dAttributes>());
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    NetworkLoops().max_pool(g, x.as<float>() + in, y.as<float>() + out);
  });
}

void RunMaxPoolGrad(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& dy = call.inputs[2];
  const TensorRef& dx = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(x, y, attributes);
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    NetworkLoops().max_pool_grad(g, attributes.relu_grad, x.as<float>() + in, y.as<float>() + out,
                                 dy.as<float>() + out, dx.as<float>() + in);
  });
}

void RunAveragePool(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(x, y, attributes);
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    NetworkLoops().average_pool(g, attributes.count_include_pad, x.as<float>() + in,
                                y.as<float>() + out);
  });
}

void RunAveragePoolGrad(const KernelCall& call) {
  const TensorRef& dy = call.inputs[0];
  const TensorRef& dx = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(dx, dy, attributes);
  ForEachImage(call, dx, g, [&](int64_t in, int64_t out) {
    NetworkLoops().average_pool_grad(g, attributes.count_include_pad, dy.as<float>() + out,
                                     dx.as<float>() + in);
  });
}

const NetworkKernels registrar({
    {OpCode::kMaxPool2d, &RunMaxPool},
    {OpCode::kMaxPool2dGrad, &RunMaxPoolGrad},
    {OpCode::kAveragePool2d, &RunAveragePool},
    {OpCode::kAveragePool2dGrad, &RunAveragePoolGrad},
});

}  // namespace
}  // namespace tidepool::cpu
