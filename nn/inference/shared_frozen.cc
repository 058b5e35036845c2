#include "tidepool/nn/inference/shared_frozen.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/engine_fork.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/nn/inference/freeze.h"

namespace tidepool::nn {
namespace {

using Key = std::pair<const Network*, std::string>;

EngineMutex<EngineLock::kFrozenNames> names_mutex;

std::string TextOf(const FrozenOptions& options) {
  const auto& samples = options.calibration;
  const Buffer* const buffer = samples.is_defined() ? samples.buffer().get() : nullptr;
  return absl::StrCat(
      static_cast<int>(options.type), " ", absl::StrJoin(options.batches, ","), " ",
      options.softmax, " ", options.threads, " ", static_cast<int>(options.method), " ",
      options.percentile, " ", absl::StrJoin(options.float_layers, ","), " ",
      static_cast<int>(options.ranges), " ",
      // Samples that were written to are others.
      buffer == nullptr ? 0 : buffer->id, " ",
      buffer == nullptr ? 0 : buffer->version.load(std::memory_order_acquire), " ",
      samples.is_defined() ? samples.shape().ToString() : "", " ",
      samples.is_defined()
          ? absl::StrJoin(absl::MakeConstSpan(samples.strides(), samples.rank()), ",")
          : "",
      " ", reinterpret_cast<uintptr_t>(samples.is_defined() ? samples.raw_data() : nullptr));
}

}  // namespace

std::shared_ptr<SharedFrozen> SharedFrozen::Of(std::shared_ptr<const Network> network,
                                               const FrozenOptions& options) {
  static auto* const all = new std::map<Key, std::weak_ptr<SharedFrozen>>;
  FrozenOptions normal = options;
  if (options.type != FrozenType::kInt8 || options.ranges == QuantisedRanges::kDynamic)
    normal.calibration = {};
  std::sort(normal.batches.begin(), normal.batches.end(), std::greater<>());
  normal.batches.erase(std::unique(normal.batches.begin(), normal.batches.end()),
                       normal.batches.end());
  Key key(network.get(), TextOf(normal));
  const std::lock_guard lock(names_mutex);
  std::erase_if(*all, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<SharedFrozen>& known = (*all)[std::move(key)];
  std::shared_ptr<SharedFrozen> result = known.lock();
  if (result == nullptr) {
    result = std::make_shared<SharedFrozen>(std::move(network), normal);
    known = result;
  }
  return result;
}

void SharedFrozen::Freeze() {
  try {
    frozen_ = std::make_shared<const FrozenNetwork>(*network_, options_);
    was_frozen_ = true;
    if (!gains_.empty()) return;
    for (const int64_t batch : options_.batches) {
      gains_.push_back(LinkedFrozenEngine()->GainOf(frozen_->graph(), batch));
    }
  } catch (const UnfitWeightsError& error) {
    why_not_ = error.what();
  } catch (const Error& error) {
    if (error.code() != absl::StatusCode::kUnimplemented) throw;
    why_not_ = error.what();
  }
}

std::string SharedFrozen::WhyKernels(int64_t batch) const {
  const std::vector<int64_t>& batches = options_.batches;
  const auto found = std::find(batches.begin(), batches.end(), batch);
  if (found == batches.end()) {
    return absl::StrCat("a batch of ", batch, ", and the engine is asked for those of ",
                        absl::StrJoin(batches, ", "));
  }
  const std::lock_guard lock(mutex_);
  if (gains_.empty() || gains_[static_cast<size_t>(found - batches.begin())] > 0) return "";
  return absl::StrCat("kernels are estimated to be ahead for a batch of ", batch);
}

std::shared_ptr<const FrozenNetwork> SharedFrozen::Current(std::string* why_not) {
  const NDArray& weights = network_->arrays();
  if (weights.device() != Host()) {
    *why_not = absl::StrCat("the network is on ", DeviceName(weights.device()));
    return nullptr;
  }
  if (network_->compute_type().has_value()) {
    *why_not = absl::StrCat("layers compute by ", DTypeName(*network_->compute_type()));
    return nullptr;
  }
  std::shared_ptr<const FrozenNetwork> old;  // goes when the lock has gone
  const std::lock_guard lock(mutex_);
  const Buffer* const buffer = weights.buffer().get();  // null: there are no weights
  if (buffer != nullptr && buffer->MayBeWrittenOutside()) {
    old = std::exchange(frozen_, nullptr);
    is_known_ = false;
    *why_not = "the weights are in other hands too, which may write to them unseen";
    return nullptr;
  }
  // Read before the weights are: what is written meanwhile is seen at the next call.
  const uint32_t version = buffer == nullptr ? 0 : buffer->version.load(std::memory_order_acquire);
  const uint64_t id = buffer == nullptr ? 0 : buffer->id;
  if (!is_known_ || id != buffer_id_ || version != version_) {
    old = std::exchange(frozen_, nullptr);
    is_known_ = false;
    why_not_.clear();
    if (was_frozen_ && options_.calibration.is_defined() && !options_.calibration.IsInScope()) {
      why_not_ = "the weights were written to, and the calibration samples have gone";
    } else {
      Freeze();
    }
    is_known_ = true;
    buffer_id_ = id;
    version_ = version;
  }
  *why_not = why_not_;
  return frozen_;
}

}  // namespace tidepool::nn
