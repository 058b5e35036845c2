#include <algorithm>
#include <cstdio>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
using namespace tidepool;

namespace {

int calls = 0;

// The dispatcher has checked shapes and types and made the operands dense (`strided` is not set).
void RunRelu(const KernelCall& call) {
  ++calls;
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  for (int64_t i = 0; i < call.outputs[0].NumElements(); ++i) z[i] = x[i] <= 0 ? 0 : x[i];
}

// Only long rows: everything else goes to the next provider in the order of priority.
bool SupportsRelu(const KernelCall& call) { return call.outputs[0].NumElements() >= 1000; }

// Linking this object file registers the kernel; 30 is above XNNPACK's 20 and the CPU backend's 10.
const KernelRegistrar registrar({
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "mine", 30, &RunRelu, nullptr,
     &SupportsRelu},
});

}  // namespace

int main() {
  Relu(Ones({10}));
  Relu(Ones({50, 40}).Transpose());  // a view with gaps comes as a dense copy
  std::printf("mine ran %d of 2 calls\n", calls);
  for (const Kernel& kernel :
       KernelRegistry::Find(OpCode::kRelu, DeviceType::kHost, DType::kFloat32)) {
    std::printf("%-9s priority %d\n", kernel.provider, kernel.priority);
  }
}
