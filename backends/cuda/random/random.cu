// Random numbers: kernel/philox.h and kernel/random_numbers.h have the formulas. A thread makes the
// elements of one or more Philox blocks.
//
// Compiled without fused multiply-adds (BUILD.bazel): where the formulas have none, results are the
// host's to the bit.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/kernel/random_numbers.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;

// Elements [block * kPerBlock, ..) from the words of each block: make(words, lane) in order.
template <int kPerBlock, typename T, typename Make>
__global__ void __launch_bounds__(kThreads)
    FillFromWords(uint64_t seed, uint64_t stream, Make make, const T* x, T* z, int64_t count) {
  const int64_t blocks = (count + kPerBlock - 1) / kPerBlock;
  for (int64_t block = GlobalThread(); block < blocks; block += GlobalThreads()) {
    const PhiloxWords words = Philox(seed, stream, static_cast<uint64_t>(block));
    T numbers[kPerBlock];
    const int64_t first = block * kPerBlock;
#pragma unroll
    for (int i = 0; i < kPerBlock; ++i) {
      numbers[i] = x != nullptr && first + i < count ? x[first + i] : T{};
    }
    make(words, numbers);
#pragma unroll
    for (int i = 0; i < kPerBlock; ++i) {
      if (first + i < count) z[first + i] = numbers[i];
    }
  }
}

template <int kPerBlock, typename T, typename Make>
void Run(const KernelCall& call, uint64_t seed, uint64_t stream, const Make& make) {
  const Queue queue = QueueOf(call);
  const int64_t count = call.outputs[0].NumElements();
  const T* const x = call.inputs.empty() ? nullptr : call.inputs[0].as<const T>();
  Launch(FillFromWords<kPerBlock, T, Make>, queue.Blocks(count / kPerBlock + 1, kThreads), kThreads, 0,
         queue.stream, seed, stream, make, x, call.outputs[0].as<T>(), count);
}

// ---- uniform ------------------------------------------------------------------------------------

template <typename T>
struct MakeUniform {
  UniformOf<T> uniform;
  __device__ void operator()(const PhiloxWords& words, T (&numbers)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = uniform(words.word[i]);
  }
};
// As UniformOf<double>.
struct MakeUniformDouble {
  double low, range, last;
  __device__ void operator()(const PhiloxWords& words, double (&numbers)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint64_t bits = Bits53(words.word[2 * i], words.word[2 * i + 1]);
      const double value = fma(range, static_cast<double>(bits) * 0x1p-53, low);
      numbers[i] = value < last ? value : last;
    }
  }
};

template <typename T>
void RunUniform(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  if constexpr (std::is_same_v<T, double>) {
    const MakeUniformDouble make{a.low, a.high - a.low, std::nextafter(a.high, a.low)};
    Run<2, T>(call, a.seed, a.stream, make);
  } else {
    Run<4, T>(call, a.seed, a.stream, MakeUniform<T>{UniformOf<T>(a.low, a.high)});
  }
}

// ---- normal -------------------------------------------------------------------------------------

template <typename T>
struct MakeNormal {
  double mean, deviation;
  __device__ void operator()(const PhiloxWords& words, T (&numbers)[4]) const {
    constexpr double kTwoPi = 6.283185307179586476925;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const double u = (static_cast<double>(words.word[i]) + 1) * 0x1p-32;
      const double v = static_cast<double>(words.word[i + 1]) * 0x1p-32;
      const double r = sqrt(-2 * log(u));
      numbers[i] = T(mean + deviation * (r * cos(kTwoPi * v)));
      numbers[i + 1] = T(mean + deviation * (r * sin(kTwoPi * v)));
    }
  }
};
struct MakeNormalDouble {
  double mean, deviation;
  __device__ void operator()(const PhiloxWords& words, double (&numbers)[2]) const {
    constexpr double kTwoPi = 6.283185307179586476925;
    const double u = static_cast<double>(Bits53(words.word[0], words.word[1]) + 1) * 0x1p-53;
    const double v = static_cast<double>(Bits53(words.word[2], words.word[3])) * 0x1p-53;
    const double r = sqrt(-2 * log(u));
    numbers[0] = fma(deviation, r * cos(kTwoPi * v), mean);
    numbers[1] = fma(deviation, r * sin(kTwoPi * v), mean);
  }
};

template <typename T>
void RunNormal(const KernelCall& call) {
  const auto& a = call.attrs<RandomAttributes>();
  if constexpr (std::is_same_v<T, double>) {
    Run<2, T>(call, a.seed, a.stream, MakeNormalDouble{a.low, a.high});
  } else {
    Run<4, T>(call, a.seed, a.stream, MakeNormal<T>{a.low, a.high});
  }
}

// ---- ones, integers, dropout --------------------------------------------------------------------

template <typename T>
struct MakeBernoulli {
  uint64_t threshold;
  __device__ void operator()(const PhiloxWords& words, T (&numbers)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers[i] = ConvertElement<T>(words.word[i] < threshold ? 1.0f : 0.0f);
    }
  }
};

template <typename T>
void RunBernoulli(const KernelCall& call) {
  const auto& a = call.attrs<BernoulliAttributes>();
  Run<4, T>(call, a.seed, a.stream, MakeBernoulli<T>{BernoulliThreshold(a.probability)});
}

struct MakeIntegers {
  uint64_t low, numbers_of;
  __device__ void operator()(const PhiloxWords& words, int32_t (&numbers)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      numbers[i] = static_cast<int32_t>(
          low + Below(numbers_of, Bits64(words.word[2 * i], words.word[2 * i + 1])));
    }
  }
  __device__ void operator()(const PhiloxWords& words, int64_t (&numbers)[1]) const {
    numbers[0] = static_cast<int64_t>(low + Below(numbers_of, Bits64(words.word[0], words.word[1]),
                                                  Bits64(words.word[2], words.word[3])));
  }
};

template <typename T>
void RunIntegers(const KernelCall& call) {
  const auto& a = call.attrs<RandomIntegersAttributes>();
  const MakeIntegers make{static_cast<uint64_t>(a.low),
                          static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low)};
  Run<sizeof(T) == 4 ? 2 : 1, T>(call, a.seed, a.stream, make);
}

template <typename T>
struct MakeDropout {
  uint64_t threshold;
  double scale;
  __device__ void operator()(const PhiloxWords& words, T (&numbers)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool dropped = words.word[i] < threshold;
      const double kept = static_cast<double>(numbers[i]) * scale;
      numbers[i] = dropped ? T(0.0f) : T(kept);
    }
  }
};

template <typename T>
void RunDropout(const KernelCall& call) {
  const auto& a = call.attrs<DropoutAttributes>();
  Run<4, T>(call, a.seed, a.stream, MakeDropout<T>{BernoulliThreshold(a.rate), 1 / (1 - a.rate)});
}

// ---- permutation --------------------------------------------------------------------------------

// One exchange depends on the one before: one thread does them, and its block draws for it.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    Shuffle(uint64_t seed, uint64_t stream, T* z, int64_t count) {
  __shared__ int64_t others[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  for (int64_t i = t; i < count; i += kThreads) z[i] = static_cast<T>(i);
  for (int64_t last = count - 1; last >= 1; last -= kThreads) {
    const int64_t mine = last - t;
    if (mine >= 1) {
      const PhiloxWords words = Philox(seed, stream, static_cast<uint64_t>(mine / 2));
      const int first = mine % 2 == 0 ? 0 : 2;
      others[t] = static_cast<int64_t>(
          Below(static_cast<uint64_t>(mine + 1), Bits64(words.word[first], words.word[first + 1])));
    }
    __syncthreads();
    for (int64_t i = last; t == 0 && i >= 1 && i > last - kThreads; --i) {
      const int64_t other = others[last - i];
      const T kept = z[i];
      z[i] = z[other];
      z[other] = kept;
    }
    __syncthreads();
  }
}

template <typename T>
void RunPermutation(const KernelCall& call) {
  const auto& a = call.attrs<PermutationAttributes>();
  Launch(Shuffle<T>, 1, kThreads, 0, QueueOf(call).stream, a.seed, a.stream, call.outputs[0].as<T>(),
         call.outputs[0].NumElements());
}

const bool registered = [] {
  ForEachType(FloatTypes(), [](auto t) {
    using T = decltype(t);
    constexpr DType kType = DTypeOf<T>::value;
    AddKernel(OpCode::kRandomUniform, kType, &RunUniform<T>);
    AddKernel(OpCode::kRandomNormal, kType, &RunNormal<T>);
    AddKernel(OpCode::kRandomBernoulli, kType, &RunBernoulli<T>);
    AddKernel(OpCode::kDropout, kType, &RunDropout<T>);
  });
  AddKernel(OpCode::kRandomBernoulli, DType::kUInt8, &RunBernoulli<uint8_t>);
  AddKernel(OpCode::kRandomBernoulli, DType::kBool, &RunBernoulli<bool>);
  AddKernel(OpCode::kRandomIntegers, DType::kInt32, &RunIntegers<int32_t>);
  AddKernel(OpCode::kRandomIntegers, DType::kInt64, &RunIntegers<int64_t>);
  AddKernel(OpCode::kRandomPermutation, DType::kInt32, &RunPermutation<int32_t>);
  AddKernel(OpCode::kRandomPermutation, DType::kInt64, &RunPermutation<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
