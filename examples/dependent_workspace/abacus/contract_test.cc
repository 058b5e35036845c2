// The contracts that Tidepool's own devices and kernels keep.
#include <algorithm>

#include "abacus/abacus_device.h"
#include "tidepool/memory/testing/device_contract_suite.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace abacus {
namespace {

const tidepool::Device kDevice{kAbacus, 0};

void QueueFill(std::byte* to, std::byte value, size_t bytes) {
  AbacusDevice& device = *AbacusDevice::Find(0);
  device.QueueKernel({{to, to + bytes}},
                     [=, &device] { std::fill_n(device.OnCard(to), bytes, value); });
}

const bool memory = tidepool::RegisterDeviceContract(
    {.device = kDevice, .capacity_bytes = AbacusDevice::kMemoryBytes, .queue_fill = &QueueFill});

// `only` is the list of what it has: a kernel more or less fails, so that no gap is an accident.
const bool kernels = tidepool::RegisterOpContract({
    .provider = "abacus",
    .only = {"fill f32", "copy f32", "add f32", "subtract f32", "multiply f32", "square f32",
             "relu f32", "relu_grad f32", "sgd_update f32", "matmul f32", "conv2d f32",
             "max_pool2d f32"},
    .may_refuse = {"conv2d f32"},
    .device = kDevice,
    .cases = 0.1,
});

}  // namespace
}  // namespace abacus
