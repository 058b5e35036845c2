#include "tidepool/nn/data/multi_normalizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/normalizer_sums.h"

namespace tidepool::nn {
namespace {

constexpr absl::string_view kFormat = "tidepool-multi-normalizer-1";
constexpr absl::string_view kNone = "none";
using Normalizers = MultiNormalizer::Normalizers;

// Calls use(i) for each that is there; an Error says of which array it is.
template <typename Use>
void ForEach(const Normalizers& normalizers, const char* what, Use use) {
  for (size_t i = 0; i < normalizers.size(); ++i) {
    if (!normalizers[i].has_value()) continue;
    try {
      use(i);
    } catch (Error& error) {
      error.AddContext(absl::StrCat(what, " ", i));
      throw;
    }
  }
}

NDArray& ArrayOf(MultiDataSet::Arrays& arrays, size_t i) {
  if (i >= arrays.size()) {
    ThrowInvalidArgument(
        absl::StrCat("normalizer: found ", arrays.size(), " arrays, expected more"));
  }
  return arrays[i];
}

NDArray MaskOf(const MultiDataSet::Arrays& masks, size_t i) {
  return i < masks.size() ? masks[i] : NDArray();
}

}  // namespace

MultiNormalizer::MultiNormalizer(Normalizers features, Normalizers labels)
    : features_(std::move(features)), labels_(std::move(labels)) {
  const auto check = [](const Normalizers& normalizers, const char* what) {
    ForEach(normalizers, what, [&](size_t i) {
      if (!normalizers[i]->labels_too_) return;
      ThrowInvalidArgument(
          "normalizer: found one made with labels_too, expected one of features, as outputs have "
          "their own");
    });
  };
  check(features_, "features");
  check(labels_, "labels");
}

void MultiNormalizer::Fit(MultiDataSetIterator& batches) {
  std::vector<Normalizer::Sums> features(features_.size()), labels(labels_.size());
  const auto learns = [](const Normalizer& normalizer) {
    return normalizer.kind_ != Normalizer::Kind::kImageScale;
  };
  while (std::optional<MultiDataSet> batch = batches.Next()) {
    ForEach(features_, "features", [&](size_t i) {
      if (!learns(*features_[i])) return;
      features[i].Add(ArrayOf(batch->features, i), MaskOf(batch->features_masks, i), "array");
    });
    ForEach(labels_, "labels", [&](size_t i) {
      if (!learns(*labels_[i])) return;
      labels[i].Add(ArrayOf(batch->labels, i), MaskOf(batch->labels_masks, i), "array");
    });
  }
  Normalizers of_features = features_, of_labels = labels_;
  const auto finish = [&](Normalizers& normalizers, std::vector<Normalizer::Sums>& sums,
                          const char* what) {
    ForEach(normalizers, what, [&](size_t i) {
      if (!learns(*normalizers[i])) return;
      if (sums[i].count == 0) {
        ThrowFailedPrecondition("normalizer: found no examples to fit, expected at least one");
      }
      normalizers[i]->features_ = normalizers[i]->ColumnsOf(sums[i], what);
    });
  };
  finish(of_features, features, "features");
  finish(of_labels, labels, "labels");
  batches.Reset();
  features_ = std::move(of_features);
  labels_ = std::move(of_labels);
}

bool MultiNormalizer::is_fitted() const {
  const auto is = [](const std::optional<Normalizer>& one) {
    return !one.has_value() || one->is_fitted();
  };
  return std::all_of(features_.begin(), features_.end(), is) &&
         std::all_of(labels_.begin(), labels_.end(), is);
}

void MultiNormalizer::Apply(MultiDataSet& batch) const {
  // All is looked at before anything is changed.
  const auto check = [](const Normalizers& normalizers, MultiDataSet::Arrays& arrays,
                        const char* what) {
    ForEach(normalizers, what, [&](size_t i) {
      normalizers[i]->WidthOf(ArrayOf(arrays, i), normalizers[i]->features_, what);
    });
  };
  check(features_, batch.features, "features");
  check(labels_, batch.labels, "labels");
  const auto separate = [&](const Normalizers& normalizers, MultiDataSet::Arrays& arrays) {
    for (size_t i = 0; i < normalizers.size(); ++i) {
      if (!normalizers[i].has_value()) continue;
      for (MultiDataSet::Arrays* others : {&batch.features, &batch.labels}) {
        for (NDArray& other : *others) {
          if (&other != &arrays[i]) Separate(arrays[i], other);
        }
      }
    }
  };
  separate(features_, batch.features);
  separate(labels_, batch.labels);
  ForEach(features_, "features",
          [&](size_t i) { features_[i]->ApplyToFeatures(ArrayOf(batch.features, i)); });
  ForEach(labels_, "labels",
          [&](size_t i) { labels_[i]->ApplyToFeatures(ArrayOf(batch.labels, i)); });
}

void MultiNormalizer::RevertFeatures(size_t i, NDArray& features) const {
  if (i < features_.size() && features_[i].has_value()) features_[i]->RevertFeatures(features);
}

void MultiNormalizer::RevertLabels(size_t i, NDArray& labels) const {
  if (i < labels_.size() && labels_[i].has_value()) labels_[i]->RevertFeatures(labels);
}

std::string MultiNormalizer::ToText() const {
  std::string text = absl::StrCat(kFormat, " ", features_.size(), " ", labels_.size());
  for (const Normalizers* normalizers : {&features_, &labels_}) {
    for (const std::optional<Normalizer>& one : *normalizers) {
      absl::StrAppend(&text, ";", one.has_value() ? one->ToText() : std::string(kNone));
    }
  }
  return text;
}

MultiNormalizer MultiNormalizer::FromText(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  const std::vector<absl::string_view> head = absl::StrSplit(parts[0], ' ');
  uint64_t features = 0, labels = 0;
  // The parts themselves bound what room is made.
  if (head.size() != 3 || head[0] != kFormat || !absl::SimpleAtoi(head[1], &features) ||
      !absl::SimpleAtoi(head[2], &labels) || absl::StrCat(features) != head[1] ||
      absl::StrCat(labels) != head[2] || features > parts.size() || labels > parts.size() ||
      features + labels != parts.size() - 1) {
    ThrowDataLoss(absl::StrCat("multi-normalizer: found \"",
                               OneLine(std::string(parts[0].substr(0, 80))), "\" and ",
                               parts.size() - 1, " parts, expected \"", kFormat,
                               "\", and how many of inputs and outputs follow"));
  }
  Normalizers all;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == kNone) {
      all.emplace_back();
      continue;
    }
    try {
      all.emplace_back(Normalizer::FromText(parts[i]));
      if (all.back()->labels_too_) ThrowDataLoss("normalizer: found labels, expected features");
    } catch (Error& error) {
      error.AddContext(absl::StrCat("multi-normalizer: part ", i));
      throw;
    }
  }
  const auto middle = all.begin() + static_cast<ptrdiff_t>(features);
  return MultiNormalizer(Normalizers(all.begin(), middle), Normalizers(middle, all.end()));
}

NormalizedMultiIterator::NormalizedMultiIterator(MultiDataSetIterator& base,
                                                 const MultiNormalizer& normalizer)
    : base_(base), normalizer_(normalizer) {
  if (!normalizer.is_fitted()) ThrowNotFitted();
}

void MultiNormalizer::ApplyToBatch(MultiDataSet& batch) const {
  ForEach(features_, "features", [&](size_t i) { TakeOwnMemory(ArrayOf(batch.features, i)); });
  ForEach(labels_, "labels", [&](size_t i) { TakeOwnMemory(ArrayOf(batch.labels, i)); });
  Apply(batch);
}

MultiDataSet NormalizedMultiIterator::Make(int64_t index, const std::stop_token& stop) const {
  MultiDataSet batch = base_.Make(index, stop);
  normalizer_.ApplyToBatch(batch);
  return batch;
}

std::optional<MultiDataSet> NormalizedMultiIterator::NextBatch(const std::stop_token& stop) {
  std::optional<MultiDataSet> batch = base_.Next(stop);
  if (batch.has_value()) normalizer_.ApplyToBatch(*batch);
  return batch;
}

}  // namespace tidepool::nn
