#include "tidepool/nn/distributed/gradient_buckets.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/nn/distributed/collectives.h"

namespace tidepool::nn {

namespace {

template <typename T>
Elements ElementsAs(ElementType type, const NDArray& array) {
  NDArray writable = array;
  const int64_t count = array.NumElements();
  if (array.device() == Host()) return {writable.mutable_data<T>(), count, type};
  if (count == 0) return {static_cast<T*>(nullptr), 0, type, array.device()};
  T* data;
  {
    DeviceView<T> view(writable);
    data = view.data();
  }
  // Who goes on in the thread's queue has waited for the collective by then.
  return {data, count, type, array.device(), PointAfterUses(*array.buffer().get())};
}

}  // namespace

Elements ElementsOf(const NDArray& array) {
  switch (array.dtype()) {
    case DType::kFloat32:
      return ElementsAs<float>(ElementType::kFloat32, array);
    case DType::kFloat64:
      return ElementsAs<double>(ElementType::kFloat64, array);
    default:
      break;
  }
  ThrowInvalidArgument(
      absl::StrCat("distributed: an array of ", DTypeName(array.dtype()), ", expected f32 or f64"));
}

GradientBuckets::GradientBuckets(const Network& network, Communicator& communicator,
                                 int64_t bucket_bytes, Sums sums)
    : network_(network), communicator_(communicator), sums_(sums) {
  if (bucket_bytes < 1)
    ThrowInvalidArgument(
        absl::StrCat("distributed: buckets of ", bucket_bytes, " bytes, expected at least 1"));
  // Trained ones stand first, in the order of the flat array.
  std::vector<int64_t> begins;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (parameter.is_trained) begins.push_back(parameter.begin);
  }
  bucket_of_.resize(begins.size());
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(network.dtype()));
  int64_t end = network.trained_elements();
  // From the end, so that what is final first fills whole buckets.
  for (size_t k = begins.size(); k-- > 0;) {
    const int64_t parameter_end = k + 1 < begins.size() ? begins[k + 1] : end;
    if (buckets_.empty() || (buckets_.back().end - begins[k]) * element_bytes > bucket_bytes) {
      buckets_.push_back(
          {.begin = begins[k], .end = parameter_end, .sum = std::make_unique<Pending>()});
    }
    Bucket& bucket = buckets_.back();
    bucket.begin = begins[k];
    ++bucket.parameters;
    bucket_of_[k] = static_cast<int>(buckets_.size()) - 1;
  }
  SplitOffTheFirst(begins, element_bytes);
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), 0);
  completed_.reserve(buckets_.size());
}

void GradientBuckets::SplitOffTheFirst(const std::vector<int64_t>& begins, int64_t element_bytes) {
  if (buckets_.empty()) return;
  Bucket& last = buckets_.back();
  const int64_t bytes = last.end * element_bytes;
  const auto tree = static_cast<int64_t>(Collectives::kTreeBytes);
  if (bytes <= tree) return;
  int first = last.parameters - 1;
  while (first > 0 &&
         begins[static_cast<size_t>(first)] * element_bytes > std::min(tree, bytes / 4))
    --first;
  if (first == 0) return;
  const int64_t end = begins[static_cast<size_t>(first)];
  last.begin = end;
  last.parameters -= first;
  std::fill_n(bucket_of_.begin(), first, static_cast<int>(buckets_.size()));
  buckets_.push_back(
      {.begin = 0, .end = end, .parameters = first, .sum = std::make_unique<Pending>()});
}

void GradientBuckets::Begin() {
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  completed_.clear();
  begun_ = 0;
}

void GradientBuckets::GradientIsFinal(int parameter) {
  const int number = bucket_of_[static_cast<size_t>(parameter)];
  Bucket& bucket = buckets_[static_cast<size_t>(number)];
  if (--bucket.missing > 0) return;
  completed_.push_back(number);
  while (begun_ < order_.size() && buckets_[static_cast<size_t>(order_[begun_])].missing == 0) {
    Start(buckets_[static_cast<size_t>(order_[begun_++])]);
  }
}

void GradientBuckets::BeginRest() {
  while (begun_ < order_.size()) Start(buckets_[static_cast<size_t>(order_[begun_++])]);
}

void GradientBuckets::Start(Bucket& bucket) {
  const bool parts = sums_ == Sums::kOwnPart;
  communicator_.Start(parts ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                      ElementsOf(network_.gradients().Slice(0, bucket.begin, bucket.end)),
                      *bucket.sum, "gradients");
}

void GradientBuckets::GatherParts(const NDArray& flat) {
  for (const int32_t number : order_) {
    const Bucket& bucket = buckets_[static_cast<size_t>(number)];
    communicator_.Start(CollectiveKind::kAllGather,
                        ElementsOf(flat.Slice(0, bucket.begin, bucket.end)), *bucket.sum,
                        "parameters");
  }
  Wait();
}

std::vector<std::pair<int64_t, int64_t>> GradientBuckets::OwnRanges() const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  // Buckets are numbered from the array's end.
  for (size_t i = buckets_.size(); i-- > 0;) {
    const Bucket& bucket = buckets_[i];
    const auto [begin, end] =
        PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
    ranges.emplace_back(bucket.begin + begin, bucket.begin + end);
  }
  return ranges;
}

void GradientBuckets::Wait() {
  for (const int32_t number : order_) buckets_[static_cast<size_t>(number)].sum->Wait();
}

std::pair<int64_t, int64_t> GradientBuckets::range(int bucket) const {
  const Bucket& of = buckets_[static_cast<size_t>(bucket)];
  return {of.begin, of.end};
}

std::vector<int32_t> GradientBuckets::completed() const {
  std::vector<int32_t> all = completed_;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    if (std::find(completed_.begin(), completed_.end(), number) == completed_.end())
      all.push_back(number);
  }
  return all;
}

void GradientBuckets::set_order(absl::Span<const int32_t> order) {
  std::vector<int32_t> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end());
  bool is_good = sorted.size() == buckets_.size();
  for (size_t i = 0; i < sorted.size() && is_good; ++i)
    is_good = sorted[i] == static_cast<int32_t>(i);
  if (!is_good)
    ThrowInvalidArgument(absl::StrCat("distributed: an order of ", order.size(),
                                      " buckets, expected one of each of ", buckets_.size()));
  order_.assign(order.begin(), order.end());
}

}  // namespace tidepool::nn
