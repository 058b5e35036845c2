#include "tidepool/nn/data/normalizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/normalizer_sums.h"

namespace tidepool::nn {
namespace {

constexpr absl::string_view kFormat = "tidepool-normalizer-1";
constexpr absl::string_view kNames[] = {"standardize", "min_max", "image_scale"};
constexpr size_t kMostColumns = size_t{1} << 24;
constexpr double kNarrowest = 1e-140, kWidest = 1e140;

}  // namespace

Normalizer Normalizer::Standardize(bool labels_too) {
  return {Kind::kStandardize, 0, 1, labels_too};
}

Normalizer Normalizer::MinMax(double low, double high, bool labels_too) {
  if (!(low < high) || !std::isfinite(high - low)) {
    ThrowInvalidArgument(
        absl::StrCat("normalizer: found a range from ", low, " to ", high,
                     ", expected finite bounds, the lower one first, whose difference is finite"));
  }
  return {Kind::kMinMax, low, high, labels_too};
}

Normalizer Normalizer::ImageScale(double low, double high, double greatest) {
  Normalizer normalizer = MinMax(low, high);
  if (!(greatest > 0) || !std::isfinite(greatest)) {
    ThrowInvalidArgument(absl::StrCat("normalizer: found a greatest pixel of ", greatest,
                                      ", expected a finite one above 0"));
  }
  const double factor = (high - low) / greatest;
  if (!std::isnormal(factor)) {
    ThrowInvalidArgument(absl::StrCat("normalizer: found pixels to ", greatest, " for ", low,
                                      " to ", high, ", a factor of ", factor,
                                      ", expected one that is a normal number"));
  }
  normalizer.kind_ = Kind::kImageScale;
  normalizer.features_ = {{0}, {factor}, {low}};
  return normalizer;
}

Normalizer::Columns Normalizer::ColumnsOf(const Sums& sums, const char* what) const {
  Columns columns;
  for (size_t i = 0; i < sums.mean.size(); ++i) {
    const bool standardize = kind_ == Kind::kStandardize;
    // A column that masks leave out altogether is 0 as far as anybody knows.
    const bool is_seen = sums.counts[i] > 0;
    const double least = is_seen ? sums.least[i] : 0;
    const double range = is_seen ? sums.greatest[i] - least : 0;
    // Squares of a deviation must be numbers too, and so must the factor.
    if (range != 0 &&
        (!(range >= kNarrowest && range <= kWidest) || !std::isnormal((high_ - low_) / range))) {
      ThrowDataLoss(absl::StrCat("normalizer: ", what, ": column ", i, ": found values from ",
                                 sums.least[i], " to ", sums.greatest[i],
                                 ", expected ones of which ", kNarrowest, " to ", kWidest,
                                 " lie between, or a single one"));
    }
    const double spread = standardize && is_seen
                              ? std::sqrt(sums.squares[i] / static_cast<double>(sums.counts[i]))
                              : range;
    columns.center.push_back(standardize ? sums.mean[i] : least);
    columns.factor.push_back((standardize ? 1 : high_ - low_) / (spread > 0 ? spread : 1));
    columns.offset.push_back(standardize ? 0 : low_);
  }
  return columns;
}

void Normalizer::Fit(DataSetIterator& batches) {
  if (kind_ != Kind::kImageScale) {
    Sums features, labels;
    while (const std::optional<DataSet> batch = batches.Next()) {
      features.Add(batch->features, batch->features_mask, "features");
      if (labels_too_) labels.Add(batch->labels, batch->labels_mask, "labels");
    }
    if (features.count == 0 || (labels_too_ && labels.count == 0)) {
      ThrowFailedPrecondition("normalizer: found no examples to fit, expected at least one");
    }
    Columns of_features = ColumnsOf(features, "features"), of_labels = ColumnsOf(labels, "labels");
    batches.Reset();
    features_ = std::move(of_features);
    labels_ = std::move(of_labels);
    return;
  }
  batches.Reset();
}

int64_t Normalizer::WidthOf(const NDArray& array, const Columns& columns, const char* what) const {
  if (columns.center.empty()) ThrowNotFitted();
  const int64_t width = ColumnsIn(array, what);
  if (kind_ != Kind::kImageScale && static_cast<size_t>(width) != columns.center.size()) {
    ThrowInvalidArgument(absl::StrCat("normalizer: ", what, ": found ", width,
                                      " columns, expected ", columns.center.size(), " as fitted"));
  }
  if (array.NumElements() > 0) VisitNumbers(array, what, [](auto) {});
  return width;
}

void Normalizer::Change(NDArray& array, const Columns& columns, const char* what,
                        bool reverts) const {
  const int64_t width = WidthOf(array, columns, what);
  const bool one = kind_ == Kind::kImageScale;
  NDArray to = array.dtype() == DType::kUInt8 ? NDArray(array.shape(), DType::kFloat32) : array;
  const int64_t rows = width == 0 ? 0 : array.NumElements() / width;
  if (rows == 0) {
    array = to;
    return;
  }
  VisitNumbers(array, what, [&]<typename T>(T) {
    using Result = std::conditional_t<std::is_same_v<T, uint8_t>, float, T>;
    const T* from = array.data<T>();
    Result* values = to.mutable_data<Result>();
    for (int64_t row = 0; row < rows; ++row, from += width, values += width) {
      for (int64_t column = 0; column < width; ++column) {
        const size_t i = one ? 0 : static_cast<size_t>(column);
        const auto x = static_cast<double>(from[column]);
        values[column] = static_cast<Result>(
            reverts ? (x - columns.offset[i]) / columns.factor[i] + columns.center[i]
                    : (x - columns.center[i]) * columns.factor[i] + columns.offset[i]);
      }
    }
  });
  array = to;
}

void Normalizer::Apply(DataSet& batch) const {
  WidthOf(batch.features, features_, "features");
  if (labels_too_) WidthOf(batch.labels, labels_, "labels");
  Separate(batch.features, batch.labels);
  ApplyToFeatures(batch.features);
  if (labels_too_) Change(batch.labels, labels_, "labels", false);
}

void Normalizer::ApplyToFeatures(NDArray& features) const {
  Change(features, features_, "features", false);
}

void Normalizer::RevertFeatures(NDArray& features) const {
  Change(features, features_, "features", true);
}

void Normalizer::RevertLabels(NDArray& labels) const {
  if (!labels_too_) {
    ThrowFailedPrecondition(
        "normalizer: found labels that are not normalized, expected one made with labels_too");
  }
  Change(labels, labels_, "labels", true);
}

std::string Normalizer::ToText() const {
  if (!is_fitted()) ThrowNotFitted();
  std::string text = absl::StrFormat("%s %s %.17g %.17g", kFormat,
                                     kNames[static_cast<size_t>(kind_)], low_, high_);
  for (const Columns* columns : {&features_, &labels_}) {
    if (columns == &labels_ && !labels_too_) break;
    absl::StrAppend(&text, columns == &labels_ ? " labels " : " features ", columns->center.size());
    for (const std::vector<double>* numbers :
         {&columns->center, &columns->factor, &columns->offset}) {
      for (const double number : *numbers) absl::StrAppendFormat(&text, " %.17g", number);
    }
  }
  return text;
}

Normalizer Normalizer::FromText(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  size_t at = 0;
  const auto refuse = [&](absl::string_view expected) {
    const std::string found =
        at < words.size() ? absl::StrCat("\"", OneLine(std::string(words[at].substr(0, 40))), "\"")
                          : "the end";
    ThrowDataLoss(
        absl::StrCat("normalizer: word ", at, ": found ", found, ", expected ", expected));
  };
  const auto expect = [&](absl::string_view word) {
    if (at >= words.size() || words[at] != word) refuse(word);
    ++at;
  };
  const auto number = [&] {
    double value = 0;
    // Decimal and with nothing around it, which rules out line ends, a plus and hexadecimal numbers.
    const absl::string_view word = at < words.size() ? words[at] : absl::string_view();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
      refuse("a finite number");
    ++at;
    return value;
  };
  expect(kFormat);
  const auto* const name = at < words.size()
                               ? std::find(std::begin(kNames), std::end(kNames), words[at])
                               : std::end(kNames);
  if (name == std::end(kNames)) refuse("standardize, min_max or image_scale");
  ++at;
  const double low = number(), high = number();
  if (!(low < high)) refuse("bounds, the lower one first, in front of this");
  Normalizer normalizer(static_cast<Kind>(name - std::begin(kNames)), low, high, false);
  const auto read = [&](Columns& columns, absl::string_view word) {
    expect(word);
    uint64_t count = 0;
    // The words themselves bound what room is made.
    if (at >= words.size() || !absl::SimpleAtoi(words[at], &count) ||
        absl::StrCat(count) != words[at] || count < 1 || count > kMostColumns ||
        3 * count > words.size() - at - 1 ||
        (normalizer.kind_ == Kind::kImageScale && count != 1)) {
      refuse("how many columns follow, of three numbers each");
    }
    ++at;
    for (std::vector<double>* numbers : {&columns.center, &columns.factor, &columns.offset}) {
      for (uint64_t i = 0; i < count; ++i) numbers->push_back(number());
    }
    if (std::any_of(columns.factor.begin(), columns.factor.end(),
                    [](double factor) { return !(factor > 0); })) {
      refuse("factors above 0 in front of this");
    }
  };
  read(normalizer.features_, "features");
  if (at < words.size()) {
    normalizer.labels_too_ = true;
    read(normalizer.labels_, "labels");
  }
  if (at < words.size()) refuse("the end");
  return normalizer;
}

NormalizedIterator::NormalizedIterator(DataSetIterator& base, const Normalizer& normalizer)
    : base_(base), normalizer_(normalizer) {
  if (!normalizer.is_fitted()) ThrowNotFitted();
}

void Normalizer::ApplyToBatch(DataSet& batch) const {
  TakeOwnMemory(batch.features);
  if (labels_too_) TakeOwnMemory(batch.labels);
  Apply(batch);
}

DataSet NormalizedIterator::Make(int64_t index, const std::stop_token& stop) const {
  DataSet batch = base_.Make(index, stop);
  normalizer_.ApplyToBatch(batch);
  return batch;
}

std::optional<DataSet> NormalizedIterator::NextBatch(const std::stop_token& stop) {
  std::optional<DataSet> batch = base_.Next(stop);
  if (batch.has_value()) normalizer_.ApplyToBatch(*batch);
  return batch;
}

}  // namespace tidepool::nn
