// Random fills, in parallel: elements depend on their number alone (ndarray/kernel/philox.h).
#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kBlocksPerTask = 4096;
constexpr int64_t kPhiloxWork = 64;  // a block in elementary operations

void RunUniform(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const UniformTransform uniform(a.low, a.high);
  float* z = call.outputs[0].as<float>();
  const int64_t count = call.outputs[0].NumElements();
  const int64_t blocks = (count + 3) / 4;
  ParallelFor(call.threads, blocks, kBlocksPerTask, blocks * kPhiloxWork,
              [&](int64_t begin, int64_t end) {
                for (int64_t block = begin; block < end; ++block) {
                  const PhiloxWords words = Philox(a.seed, a.stream, static_cast<uint64_t>(block));
                  const int64_t filled = std::min<int64_t>(4, count - block * 4);
                  for (int64_t k = 0; k < filled; ++k) z[block * 4 + k] = uniform(words.word[k]);
                }
              });
}

void RunNormal(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  float* z = call.outputs[0].as<float>();
  const int64_t count = call.outputs[0].NumElements();
  const int64_t blocks = (count + 3) / 4;
  ParallelFor(call.threads, blocks, kBlocksPerTask, blocks * kPhiloxWork,
              [&](int64_t begin, int64_t end) {
                for (int64_t block = begin; block < end; ++block) {
                  const PhiloxWords words = Philox(a.seed, a.stream, static_cast<uint64_t>(block));
                  float values[4];
                  NormalPair(words.word[0], words.word[1], a.low, a.high, values);
                  NormalPair(words.word[2], words.word[3], a.low, a.high, values + 2);
                  std::copy_n(values, std::min<int64_t>(4, count - block * 4), z + block * 4);
                }
              });
}

const KernelRegistrar registrar({
    {OpCode::kRandomUniform, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunUniform},
    {OpCode::kRandomNormal, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunNormal},
});

}  // namespace
}  // namespace tidepool::cpu
