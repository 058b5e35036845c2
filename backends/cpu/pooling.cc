// Max pooling of NHWC images and its gradient, an image a task.
#include <cstdint>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

PoolGeometry Geometry(const TensorRef& x, const TensorRef& y, const Pool2dAttributes& a) {
  return {x.dims[1],       x.dims[2],      x.dims[3],       y.dims[1],     y.dims[2],
          a.kernel_height, a.kernel_width, a.stride_height, a.stride_width};
}

void RunMaxPool(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.outputs[0];
  const PoolGeometry g = Geometry(x, y, call.attrs<Pool2dAttributes>());
  const int64_t in_image = g.in_height * g.in_width * g.channels;
  const int64_t out_image = g.out_height * g.out_width * g.channels;
  ParallelFor(call.threads, x.dims[0], 1, x.NumElements(), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      Loops().max_pool(g, x.as<float>() + image * in_image, y.as<float>() + image * out_image);
    }
  });
}

void RunMaxPoolGrad(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& dy = call.inputs[2];
  const TensorRef& dx = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(x, y, attributes);
  const int64_t in_image = g.in_height * g.in_width * g.channels;
  const int64_t out_image = g.out_height * g.out_width * g.channels;
  ParallelFor(call.threads, x.dims[0], 1, x.NumElements(), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      Loops().max_pool_grad(g, attributes.relu_grad, x.as<float>() + image * in_image,
                            y.as<float>() + image * out_image, dy.as<float>() + image * out_image,
                            dx.as<float>() + image * in_image);
    }
  });
}

const KernelRegistrar registrar({
    {OpCode::kMaxPool2d, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunMaxPool},
    {OpCode::kMaxPool2dGrad, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunMaxPoolGrad},
});

}  // namespace
}  // namespace tidepool::cpu
