// Random numbers: kernel/philox.h and kernel/random_numbers.h have the formulas. A thread makes the
// elements of one or more Philox blocks.
//
// Compiled without fused multiply-adds (BUILD.bazel): where the formulas have none, results are the host's to the bit; those of
// f64 normal numbers go through the device's log, sin and cos.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/backends/cuda/sorting/ordered_places.h"
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
  Launch(FillFromWords<kPerBlock, T, Make>, queue.Blocks(count / kPerBlock + 1, kThreads), kThreads,
         0, queue.stream, seed, stream, make, x, call.outputs[0].as<T>(), count);
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

__device__ float Root(float x) { return sqrtf(x); }

#define TIDEPOOL_NORMAL_FUNCTION __device__
#include "tidepool/ndarray/kernel/normal_formula.inc"

template <typename T>
struct MakeNormal {
  double mean, deviation;
  __device__ void operator()(const PhiloxWords& words, T (&numbers)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const UnitNormals unit = UnitNormalsOf(words.word[i], words.word[i + 1]);
      numbers[i] = T(mean + deviation * unit.first);
      numbers[i + 1] = T(mean + deviation * unit.second);
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

// Fisher and Yates exchange element i = count - 1, .., 1 with element h(i) <= i. Exchanges depend on those before, but
// which ones is known from the h alone, so all elements find theirs at the same time. No exchange after i touches
// element i, so what it ends with is what element h(i) has before exchange i: what exchange k, the last one before
// that has h(k) = h(i), that is the least k > i, has moved there from element k, or h(i) itself where there is none.
// Element k has before its exchange k what the exchange of the least m > k with h(m) = k has moved there from m, and
// so on: chains of a few steps, whose ends are found once the exchanges are sorted by h.

// h(i) at [i - 1].
__global__ void __launch_bounds__(kThreads)
    Draw(uint64_t seed, uint64_t stream, int32_t* others, int64_t steps) {
  for (int64_t step = GlobalThread(); step < steps; step += GlobalThreads()) {
    const int64_t i = step + 1;
    const PhiloxWords words = Philox(seed, stream, static_cast<uint64_t>(i / 2));
    const int first = i % 2 == 0 ? 0 : 2;
    others[step] = static_cast<int32_t>(
        Below(static_cast<uint64_t>(i + 1), Bits64(words.word[first], words.word[first + 1])));
  }
}

// later[i]: the least k > i with h(k) = h(i). into[j]: the least k > j with h(k) = j. 0: none.
__global__ void __launch_bounds__(kThreads) Link(const int32_t* sorted, const int64_t* places,
                                                 int64_t steps, int32_t* later, int32_t* into) {
  for (int64_t at = GlobalThread(); at < steps; at += GlobalThreads()) {
    const int32_t other = sorted[at];
    const auto i = static_cast<int32_t>(places[at] + 1);
    const bool is_first = at == 0 || sorted[at - 1] != other;
    const bool is_last = at + 1 == steps || sorted[at + 1] != other;
    const int32_t next = is_last ? 0 : static_cast<int32_t>(places[at + 1] + 1);
    later[i] = next;
    if (is_first) into[other] = i != other ? i : next;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    FollowChains(const int32_t* others, const int32_t* later, const int32_t* into, T* z,
                 int64_t count) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int32_t other = i > 0 ? others[i - 1] : 0;
    int32_t at = static_cast<int32_t>(i);
    bool moves = other == at;  // with itself: what comes there
    if (!moves) {
      at = later[i];
      moves = at != 0;
    }
    while (moves && into[at] != 0) at = into[at];
    z[i] = static_cast<T>(moves ? at : other);
  }
}

struct PermutationScratch {
  explicit PermutationScratch(int64_t count)
      : numbers(Aligned(count * 4)), places(Aligned(count * 8)) {}
  int64_t numbers, places;  // bytes
};

size_t PermutationBytes(const KernelCall& call) {
  QueueOf(call);  // makes the device current, which CUB asks for its sizes
  const int64_t count = call.outputs[0].NumElements();
  const PermutationScratch parts(count);
  return static_cast<size_t>(4 * parts.numbers + parts.places) + OrderPlacesBytes(count);
}

bool SupportsPermutation(const KernelCall& call) {
  return call.outputs[0].NumElements() < INT32_MAX;
}

template <typename T>
void RunPermutation(const KernelCall& call) {
  const auto& a = call.attrs<PermutationAttributes>();
  const int64_t count = call.outputs[0].NumElements(), steps = count - 1;
  const PermutationScratch parts(count);
  auto* memory = static_cast<std::byte*>(call.scratch);
  auto take = [&memory](int64_t bytes) {
    std::byte* const part = memory;
    memory += bytes;
    return part;
  };
  auto* const others = reinterpret_cast<int32_t*>(take(parts.numbers));
  auto* const sorted = reinterpret_cast<int32_t*>(take(parts.numbers));
  auto* const later = reinterpret_cast<int32_t*>(take(parts.numbers));
  auto* const into = reinterpret_cast<int32_t*>(take(parts.numbers));
  auto* const places = reinterpret_cast<int64_t*>(take(parts.places));
  const Queue queue = QueueOf(call);
  const unsigned blocks = queue.Blocks(count, kThreads);
  Check(cudaMemsetAsync(into, 0, static_cast<size_t>(count) * 4, queue.stream), "cudaMemsetAsync");
  if (steps > 0) {
    Launch(Draw, blocks, kThreads, 0, queue.stream, a.seed, a.stream, others, steps);
    OrderPlaces(others, steps, static_cast<int32_t>(steps), sorted, places, memory, queue.stream);
    Launch(Link, blocks, kThreads, 0, queue.stream, sorted, places, steps, later, into);
  }
  Launch(FollowChains<T>, blocks, kThreads, 0, queue.stream, others, later, into,
         call.outputs[0].as<T>(), count);
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
  AddKernel(OpCode::kRandomPermutation, DType::kInt32, &RunPermutation<int32_t>, false,
            &PermutationBytes, &SupportsPermutation);
  AddKernel(OpCode::kRandomPermutation, DType::kInt64, &RunPermutation<int64_t>, false,
            &PermutationBytes, &SupportsPermutation);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
