// Random numbers and dropout, in parallel: elements depend on their number alone
// (ndarray/kernel/random_numbers.h).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/random/random_loops.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/kernel/random_numbers.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kChunkBlocks = 256;  // their words lie on the stack
constexpr int64_t kBlocksPerTask = 4096;
constexpr int64_t kPhiloxWork = 64;  // a block in elementary operations

// run(begin, count, words) for the elements begin.. + count, `per_block` of which come from each
// block.
template <typename Run>
void ForWords(const KernelCall& call, uint64_t seed, uint64_t stream, int64_t per_block, Run run) {
  const RandomLoops& loops = FindRandomLoops();
  const int64_t count = call.outputs[0].NumElements();
  const int64_t blocks = (count + per_block - 1) / per_block;
  ParallelFor(call.threads, blocks, kBlocksPerTask, blocks * kPhiloxWork,
              [&](int64_t begin, int64_t end) {
                uint32_t words[4 * kChunkBlocks];
                for (int64_t block = begin; block < end; block += kChunkBlocks) {
                  const int64_t chunk = std::min(kChunkBlocks, end - block);
                  loops.words(seed, stream, static_cast<uint64_t>(block), chunk, words);
                  const int64_t first = block * per_block;
                  run(first, std::min(chunk * per_block, count - first), words);
                }
              });
}

void UniformFloat(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const float low = static_cast<float>(a.low), high = static_cast<float>(a.high);
  const float last = std::nextafterf(high, low), range = high - low;
  float* z = call.outputs[0].as<float>();
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    FindRandomLoops().uniform(words, low, range, last, z + begin, count);
  });
}

void UniformDouble(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const UniformOf<double> uniform(a.low, a.high);
  double* z = call.outputs[0].as<double>();
  ForWords(call, a.seed, a.stream, 2, [&](int64_t begin, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; ++i) z[begin + i] = uniform(words[2 * i], words[2 * i + 1]);
  });
}

template <typename T>
void Uniform16(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const UniformOf<T> uniform(a.low, a.high);
  T* z = call.outputs[0].as<T>();
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; ++i) z[begin + i] = uniform(words[i]);
  });
}

void NormalFloat(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  float* z = call.outputs[0].as<float>();
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    const int64_t whole = count - count % 2;
    FindRandomLoops().normal(words, a.low, a.high, z + begin, whole / 2);
    if (whole == count) return;
    float pair[2];
    FindRandomLoops().normal(words + whole, a.low, a.high, pair, 1);
    z[begin + whole] = pair[0];
  });
}

template <typename T>
void Normal16(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  T* z = call.outputs[0].as<T>();
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    float unit[4 * kChunkBlocks];
    FindRandomLoops().normal(words, 0, 1, unit, (count + 1) / 2);
    for (int64_t i = 0; i < count; ++i) z[begin + i] = T(a.low + a.high * unit[i]);
  });
}

void NormalDouble(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  double* z = call.outputs[0].as<double>();
  ForWords(call, a.seed, a.stream, 2, [&](int64_t begin, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; i += 2, words += 4) {
      double pair[2];
      NormalPairOf53Bits({{words[0], words[1], words[2], words[3]}}, a.low, a.high, pair);
      z[begin + i] = pair[0];
      if (i + 1 < count) z[begin + i + 1] = pair[1];
    }
  });
}

template <typename T>
void Bernoulli(const KernelCall& call) {
  const auto& a = call.attrs<BernoulliAttributes>();
  const uint64_t threshold = BernoulliThreshold(a.probability);
  T* z = call.outputs[0].as<T>();
  const T one = ConvertElement<T>(1.0f);
  if (threshold > UINT32_MAX)
    return static_cast<void>(std::fill_n(z, call.outputs[0].NumElements(), one));
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &one, sizeof(T));
  constexpr int kWidth = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    FindRandomLoops().ones[kWidth](words, static_cast<uint32_t>(threshold), bits, z + begin, count);
  });
}

void Integers32(const KernelCall& call) {
  const auto& a = call.attrs<RandomIntegersAttributes>();
  const uint64_t numbers = static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low);
  int32_t* z = call.outputs[0].as<int32_t>();
  ForWords(call, a.seed, a.stream, 2, [&](int64_t begin, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t drawn = Below(numbers, Bits64(words[2 * i], words[2 * i + 1]));
      z[begin + i] = static_cast<int32_t>(static_cast<uint64_t>(a.low) + drawn);
    }
  });
}

void Integers64(const KernelCall& call) {
  const auto& a = call.attrs<RandomIntegersAttributes>();
  const uint64_t numbers = static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low);
  int64_t* z = call.outputs[0].as<int64_t>();
  ForWords(call, a.seed, a.stream, 1, [&](int64_t begin, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; ++i, words += 4) {
      const uint64_t drawn = Below(numbers, Bits64(words[0], words[1]), Bits64(words[2], words[3]));
      z[begin + i] = static_cast<int64_t>(static_cast<uint64_t>(a.low) + drawn);
    }
  });
}

template <typename T>
void DropoutRun(const uint32_t* words, uint32_t limit, const T* x, double scale, T* z, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    FindRandomLoops().dropout_f32(words, limit, x, static_cast<float>(scale), z, n);
  } else if constexpr (std::is_same_v<T, double>) {
    FindRandomLoops().dropout_f64(words, limit, x, scale, z, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      z[i] = words[i] < limit ? T(0.0f) : T(static_cast<float>(x[i]) * scale);
    }
  }
}

template <typename T>
void Dropout(const KernelCall& call) {
  const auto& a = call.attrs<DropoutAttributes>();
  const T* x = call.inputs[0].as<T>();
  T* z = call.outputs[0].as<T>();
  // A rate just below 1 rounds to 2^32.
  const uint64_t threshold = BernoulliThreshold(a.rate);
  if (threshold > UINT32_MAX)
    return static_cast<void>(std::fill_n(z, call.outputs[0].NumElements(), T(0.0f)));
  const double scale = 1 / (1 - a.rate);
  ForWords(call, a.seed, a.stream, 4, [&](int64_t begin, int64_t count, const uint32_t* words) {
    DropoutRun(words, static_cast<uint32_t>(threshold), x + begin, scale, z + begin, count);
  });
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kF16 = DType::kFloat16,
                kBF16 = DType::kBFloat16;

const KernelRegistrar registrar({
    {OpCode::kRandomUniform, kHost, kF32, "cpu", 10, &UniformFloat},
    {OpCode::kRandomUniform, kHost, kF64, "cpu", 10, &UniformDouble},
    {OpCode::kRandomUniform, kHost, kF16, "cpu", 10, &Uniform16<Float16>},
    {OpCode::kRandomUniform, kHost, kBF16, "cpu", 10, &Uniform16<BFloat16>},
    {OpCode::kRandomNormal, kHost, kF32, "cpu", 10, &NormalFloat},
    {OpCode::kRandomNormal, kHost, kF64, "cpu", 10, &NormalDouble},
    {OpCode::kRandomNormal, kHost, kF16, "cpu", 10, &Normal16<Float16>},
    {OpCode::kRandomNormal, kHost, kBF16, "cpu", 10, &Normal16<BFloat16>},
    {OpCode::kRandomBernoulli, kHost, kF32, "cpu", 10, &Bernoulli<float>},
    {OpCode::kRandomBernoulli, kHost, kF64, "cpu", 10, &Bernoulli<double>},
    {OpCode::kRandomBernoulli, kHost, kF16, "cpu", 10, &Bernoulli<Float16>},
    {OpCode::kRandomBernoulli, kHost, kBF16, "cpu", 10, &Bernoulli<BFloat16>},
    {OpCode::kRandomBernoulli, kHost, DType::kUInt8, "cpu", 10, &Bernoulli<uint8_t>},
    {OpCode::kRandomBernoulli, kHost, DType::kBool, "cpu", 10, &Bernoulli<bool>},
    {OpCode::kRandomIntegers, kHost, DType::kInt32, "cpu", 10, &Integers32},
    {OpCode::kRandomIntegers, kHost, DType::kInt64, "cpu", 10, &Integers64},
    {OpCode::kDropout, kHost, kF32, "cpu", 10, &Dropout<float>},
    {OpCode::kDropout, kHost, kF64, "cpu", 10, &Dropout<double>},
    {OpCode::kDropout, kHost, kF16, "cpu", 10, &Dropout<Float16>},
    {OpCode::kDropout, kHost, kBF16, "cpu", 10, &Dropout<BFloat16>},
});

}  // namespace
}  // namespace tidepool::cpu
