// Random numbers, element after element: kernel/random_numbers.h. Dense outputs: elements are
// numbered in row-major order.
#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "tidepool/backends/reference/wide.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/kernel/random_numbers.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

uint32_t WordOf(uint64_t seed, uint64_t stream, int64_t i) {
  return Philox(seed, stream, static_cast<uint64_t>(i / 4)).word[i % 4];
}

// Two words of element i, the higher half first.
uint64_t PairOf(uint64_t seed, uint64_t stream, int64_t i) {
  const PhiloxWords words = Philox(seed, stream, static_cast<uint64_t>(i / 2));
  return Bits64(words.word[i % 2 * 2], words.word[i % 2 * 2 + 1]);
}

template <typename T>
void Uniform(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const UniformOf<T> uniform(a.low, a.high);
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    T& z = call.outputs[0].as<T>()[i];
    if constexpr (std::is_same_v<T, double>) {
      const uint64_t pair = PairOf(a.seed, a.stream, i);
      z = uniform(static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair));
    } else {
      z = uniform(WordOf(a.seed, a.stream, i));
    }
  }
}

template <typename T>
void Normal(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    double pair[2];
    if constexpr (std::is_same_v<T, double>) {
      const PhiloxWords words = Philox(a.seed, a.stream, static_cast<uint64_t>(i / 2));
      NormalPairOf53Bits(words, a.low, a.high, pair);
    } else {
      const PhiloxWords words = Philox(a.seed, a.stream, static_cast<uint64_t>(i / 4));
      const int64_t first = i % 4 / 2 * 2;
      NormalPair(words.word[first], words.word[first + 1], a.low, a.high, pair);
    }
    call.outputs[0].as<T>()[i] = T(pair[i % 2]);
  }
}

template <typename T>
void Bernoulli(const KernelCall& call) {
  const auto& a = call.attrs<BernoulliAttributes>();
  const uint64_t threshold = BernoulliThreshold(a.probability);
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    call.outputs[0].as<T>()[i] =
        ConvertElement<T>(WordOf(a.seed, a.stream, i) < threshold ? 1.0f : 0.0f);
  }
}

template <typename T>
void Integers(const KernelCall& call) {
  const auto& a = call.attrs<RandomIntegersAttributes>();
  const uint64_t numbers = static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low);
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    uint64_t drawn;
    if constexpr (sizeof(T) == 4) {
      drawn = Below(numbers, PairOf(a.seed, a.stream, i));
    } else {
      const PhiloxWords words = Philox(a.seed, a.stream, static_cast<uint64_t>(i));
      drawn = Below(numbers, Bits64(words.word[0], words.word[1]),
                    Bits64(words.word[2], words.word[3]));
    }
    call.outputs[0].as<T>()[i] = static_cast<T>(static_cast<uint64_t>(a.low) + drawn);
  }
}

template <typename T>
void Permutation(const KernelCall& call) {
  const auto& a = call.attrs<PermutationAttributes>();
  const int64_t count = call.outputs[0].NumElements();
  T* z = call.outputs[0].as<T>();
  std::iota(z, z + count, T{0});
  for (int64_t i = count - 1; i >= 1; --i) {
    std::swap(z[i], z[Below(static_cast<uint64_t>(i + 1), PairOf(a.seed, a.stream, i))]);
  }
}

template <typename T>
void Dropout(const KernelCall& call) {
  const auto& a = call.attrs<DropoutAttributes>();
  const uint64_t threshold = BernoulliThreshold(a.rate);
  const Wide<T> scale = 1 / (1 - static_cast<Wide<T>>(a.rate));
  const int64_t count = call.outputs[0].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    const bool dropped = WordOf(a.seed, a.stream, i) < threshold;
    const T x = call.inputs[0].as<T>()[i];
    call.outputs[0].as<T>()[i] = dropped ? T(0.0f) : Narrow<T>(static_cast<Wide<T>>(x) * scale);
  }
}

const bool registered = [] {
  auto add = [](OpCode op, DType dtype, void (*run)(const KernelCall&)) {
    KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "reference", 0, run});
  };
  auto add_floats = [&](auto t) {
    using T = decltype(t);
    add(OpCode::kRandomUniform, DTypeOf<T>::value, &Uniform<T>);
    add(OpCode::kRandomNormal, DTypeOf<T>::value, &Normal<T>);
    add(OpCode::kRandomBernoulli, DTypeOf<T>::value, &Bernoulli<T>);
    add(OpCode::kDropout, DTypeOf<T>::value, &Dropout<T>);
  };
  add_floats(float());
  add_floats(double());
  add_floats(Float16());
  add_floats(BFloat16());
  add(OpCode::kRandomBernoulli, DType::kUInt8, &Bernoulli<uint8_t>);
  add(OpCode::kRandomBernoulli, DType::kBool, &Bernoulli<bool>);
  add(OpCode::kRandomIntegers, DType::kInt32, &Integers<int32_t>);
  add(OpCode::kRandomIntegers, DType::kInt64, &Integers<int64_t>);
  add(OpCode::kRandomPermutation, DType::kInt32, &Permutation<int32_t>);
  add(OpCode::kRandomPermutation, DType::kInt64, &Permutation<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool
