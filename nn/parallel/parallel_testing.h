// Networks and batches for tests of several workers.
#ifndef TIDEPOOL_NN_PARALLEL_PARALLEL_TESTING_H_
#define TIDEPOOL_NN_PARALLEL_PARALLEL_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {

// ThreadSanitizer looks at each element that the reference backend's loops read, some twenty nanoseconds for each product.
// Tests of many steps take fewer then, and LeNet has fewer filters, a sixteenth of the products and a fifth of the parameters:
// who shares what with whom is the same in each.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

inline const LabelledImages& Digits() {
  static const auto* const digits =
      new LabelledImages(LoadImageFolder("examples/data/mnist").train);
  return *digits;
}

inline Network NetworkOf(const std::string& name, const NetworkOptions& options = {.seed = 5}) {
  if (name == "residual") return Network(ResidualConfig({28, 28, 1}, 10, {4, 8}), options);
  std::vector<AnyLayer> layers = LayersOf(name, 10);
  if (kUnderThreadSanitizer && name == "lenet") {
    layers[0] = Conv2D(2, 5, 5, Activation::kRelu);
    layers[2] = Conv2D(10, 5, 5, Activation::kRelu);
  }
  return Network(NetworkConfig::Sequential({28, 28, 1}, std::move(layers)), options);
}

// Consecutive images of the digits: batch i of any size is [i * size, (i + 1) * size).
class Batches {
 public:
  explicit Batches(int64_t size, DType dtype = DType::kFloat32)
      : batches_(Digits(), size), dtype_(dtype) {}
  Batch operator()(int64_t i) {
    Batch batch = batches_.Make(i);
    batch.features = Cast(batch.features, dtype_);
    return batch;
  }

 private:
  ImageBatches batches_;
  DType dtype_;
};

// A pass over batches 0 to count - 1 of a function, made ahead.
template <typename Make>
ParallelPass FitOver(ParallelWrapper& parallel, int64_t count, Make make) {
  FunctionIterator<std::invoke_result_t<Make, int64_t>> batches(count, std::move(make));
  return parallel.Fit(batches);
}

// The same, made on the calling thread.
template <typename Make>
ParallelPass FitHere(ParallelWrapper& parallel, int64_t count, Make make) {
  using Set = std::invoke_result_t<Make, int64_t>;
  FunctionIterator<Set> batches(count, std::move(make));
  ShieldedIterator<Set> shielded(batches);
  return parallel.Fit(shielded);
}

inline double LargestDifference(const NDArray& a, const NDArray& b) {
  const std::vector<double> x = Cast(a, DType::kFloat64).ToVector<double>(),
                            y = Cast(b, DType::kFloat64).ToVector<double>();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_PARALLEL_TESTING_H_
