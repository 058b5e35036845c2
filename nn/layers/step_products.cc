#include "tidepool/nn/layers/step_products.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool::nn {
namespace {

// Of fewer results two orders of additions may give the same by chance.
constexpr int64_t kLeastResults = 256;

// All that a kernel can go by.
struct Sizes {
  int64_t steps, batch, inner, columns;
  DType dtype;
  bool transposed, accumulates, has_bias;
  std::string provider;  // asked for; empty: any

  auto Key() const {
    return std::tie(steps, batch, inner, columns, dtype, transposed, accumulates, has_bias,
                    provider);
  }
  bool operator<(const Sizes& other) const { return Key() < other.Key(); }
};

NDArray RowsOf(const NDArray& steps) {
  return steps.Reshape({steps.dim(0) * steps.dim(1), steps.dim(2)});
}

void OneByOne(const NDArray& x, const NDArray& y, NDArray& z, const MatMulAttributes& attributes,
              const NDArray* bias) {
  for (int64_t i = 0; i < z.dim(0); ++i) {
    NDArray at = z.Index(0, i);
    MatMulInto(x.Index(0, i), y, at, attributes, bias);
  }
}

void AtOnce(const NDArray& x, const NDArray& y, NDArray& z, const MatMulAttributes& attributes,
            const NDArray* bias) {
  NDArray rows = RowsOf(z);
  MatMulInto(RowsOf(x), y, rows, attributes, bias);
}

// How a kernel adds up hangs on sizes and not on values, so that random numbers tell.
bool Try(const Sizes& s, const MatMulAttributes& attributes) {
  const auto random = [&](const Shape& shape, uint64_t seed) {
    return RandomUniform(shape, -1, 1, s.dtype, seed);
  };
  const NDArray x = random({s.steps, s.batch, s.inner}, 1),
                y = random(s.transposed ? Shape{s.columns, s.inner} : Shape{s.inner, s.columns}, 2),
                bias = random({s.columns}, 3);
  NDArray alone = random({s.steps, s.batch, s.columns}, 4), together = alone.Dup();
  OneByOne(x, y, alone, attributes, s.has_bias ? &bias : nullptr);
  AtOnce(x, y, together, attributes, s.has_bias ? &bias : nullptr);
  return std::memcmp(alone.raw_data(), together.raw_data(),
                     static_cast<size_t>(alone.NumElements()) * DTypeBytes(s.dtype)) == 0;
}

bool AreSame(const Sizes& sizes, const MatMulAttributes& attributes) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<Sizes, bool>;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.emplace(sizes, false);
  if (!is_new) return entry->second;
  // On a thread of its own, where none of this one's scopes hold: workspaces, tapes, managers, and dry runs, in which kernels compute
  // nothing. What fails is left at step by step.
  std::thread([&, of = &entry->second] {
    try {
      const ScopedProvider provider(sizes.provider.empty() ? nullptr : sizes.provider.c_str());
      *of = Try(sizes, attributes);
    } catch (...) {
    }
  }).join();
  return entry->second;
}

}  // namespace

void MultiplySteps(const NDArray& x, const NDArray& y, NDArray& z,
                   const MatMulAttributes& attributes, const NDArray* bias) {
  // 16-bit floats are rounded so far that different sums look the same.
  const bool shows = (z.dtype() == DType::kFloat32 || z.dtype() == DType::kFloat64) &&
                     z.NumElements() >= kLeastResults && z.device() == Host();
  if (shows && z.dim(0) > 1) {
    const char* const provider = ScopedProvider::Current();
    const Sizes sizes{z.dim(0),
                      z.dim(1),
                      x.dim(2),
                      z.dim(2),
                      z.dtype(),
                      attributes.transpose_y,
                      attributes.accumulate,
                      bias != nullptr,
                      provider != nullptr ? provider : ""};
    if (AreSame(sizes, attributes)) return AtOnce(x, y, z, attributes, bias);
  }
  OneByOne(x, y, z, attributes, bias);
}

}  // namespace tidepool::nn
