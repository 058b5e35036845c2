// Pooling of NHWC images of f32 and f64 and its gradients, an image a task.
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

PoolGeometry Geometry(const TensorRef& x, const TensorRef& y, const Pool2dAttributes& a) {
  return {x.dims[1],      x.dims[2],       x.dims[3],      y.dims[1], y.dims[2], a.kernel_height,
          a.kernel_width, a.stride_height, a.stride_width, a.pad_top, a.pad_left};
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

template <typename T>
void RunMaxPool(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.outputs[0];
  const PoolGeometry g = Geometry(x, y, call.attrs<Pool2dAttributes>());
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    LayerLoopsOf<T>().max_pool(g, x.as<T>() + in, y.as<T>() + out);
  });
}

template <typename T>
void RunMaxPoolGrad(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& dy = call.inputs[2];
  const TensorRef& dx = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(x, y, attributes);
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    LayerLoopsOf<T>().max_pool_grad(g, attributes.relu_grad, x.as<T>() + in, y.as<T>() + out,
                                    dy.as<T>() + out, dx.as<T>() + in);
  });
}

template <typename T>
void RunAveragePool(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(x, y, attributes);
  ForEachImage(call, x, g, [&](int64_t in, int64_t out) {
    LayerLoopsOf<T>().average_pool(g, attributes.count_include_pad, x.as<T>() + in,
                                   y.as<T>() + out);
  });
}

template <typename T>
void RunAveragePoolGrad(const KernelCall& call) {
  const TensorRef& dy = call.inputs[0];
  const TensorRef& dx = call.outputs[0];
  const auto& attributes = call.attrs<Pool2dAttributes>();
  const PoolGeometry g = Geometry(dx, dy, attributes);
  ForEachImage(call, dx, g, [&](int64_t in, int64_t out) {
    LayerLoopsOf<T>().average_pool_grad(g, attributes.count_include_pad, dy.as<T>() + out,
                                        dx.as<T>() + in);
  });
}

template <typename T>
constexpr NetworkKernel kKernels[] = {
    {OpCode::kMaxPool2d, &RunMaxPool<T>},
    {OpCode::kMaxPool2dGrad, &RunMaxPoolGrad<T>},
    {OpCode::kAveragePool2d, &RunAveragePool<T>},
    {OpCode::kAveragePool2dGrad, &RunAveragePoolGrad<T>},
};

const NetworkKernels registrar(kKernels<float>, kKernels<double>);

}  // namespace
}  // namespace tidepool::cpu
