// Matrix product: three loops, sums in double.
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

void MatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& bias = call.inputs[2];
  const TensorRef& z = call.outputs[0];
  const int64_t inner = x.dims[a.transpose_x ? 0 : 1];
  for (int64_t i = 0; i < z.dims[0]; ++i) {
    for (int64_t j = 0; j < z.dims[1]; ++j) {
      double sum = a.accumulate ? At<float>(z, i, j) : 0.0;
      for (int64_t k = 0; k < inner; ++k) {
        const double left = a.transpose_x ? At<float>(x, k, i) : At<float>(x, i, k);
        const double right = a.transpose_y ? At<float>(y, j, k) : At<float>(y, k, j);
        sum += left * right;
      }
      if (bias.present) sum += At<float>(bias, j);
      if (a.relu && sum <= 0) sum = 0;
      At<float>(z, i, j) = static_cast<float>(sum);
    }
  }
}

const KernelRegistrar registrar({{OpCode::kMatMul, DeviceType::kHost, DType::kFloat32, "reference",
                                  0, &MatMul, nullptr, nullptr, true}});

}  // namespace
}  // namespace tidepool
