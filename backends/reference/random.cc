// Random fills: four elements a Philox block, see philox.h. Dense outputs: elements are numbered in
// row-major order.
#include <algorithm>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// Calls transform(words, float out[4]) for each block.
template <typename Transform>
void ForEachBlock(const KernelCall& call, Transform transform) {
  const auto& a = call.attrs<RandomAttributes>();
  float* z = call.outputs[0].as<float>();
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; i += 4) {
    float values[4];
    transform(Philox(a.seed, a.stream, static_cast<uint64_t>(i / 4)), values);
    std::copy_n(values, std::min<int64_t>(4, count - i), z + i);
  }
}

void Uniform(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const UniformTransform uniform(a.low, a.high);
  ForEachBlock(call, [&](const PhiloxWords& words, float* out) {
    for (int k = 0; k < 4; ++k) out[k] = uniform(words.word[k]);
  });
}

void Normal(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  ForEachBlock(call, [&](const PhiloxWords& words, float* out) {
    NormalPair(words.word[0], words.word[1], a.low, a.high, out);
    NormalPair(words.word[2], words.word[3], a.low, a.high, out + 2);
  });
}

const KernelRegistrar registrar({
    {OpCode::kRandomUniform, DeviceType::kHost, DType::kFloat32, "reference", 0, &Uniform},
    {OpCode::kRandomNormal, DeviceType::kHost, DType::kFloat32, "reference", 0, &Normal},
});

}  // namespace
}  // namespace tidepool
