#include "tidepool/nn/distributed/sharded_parameters.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/network/lent_buffer.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "distributed";

NDArray NewHeapArray(int64_t count, DType dtype) { return Empty({count}, dtype, Place::Heap()); }

}  // namespace

struct ShardedParameters::Bucket {
  Bucket(int its_number, int64_t its_begin, int64_t its_end, size_t bytes)
      : number(its_number),
        begin(its_begin),
        end(its_end),
        value(bytes, LentBuffer::From::kRanks),
        gradient(bytes, LentBuffer::From::kRanks) {}
  const int number;
  const int64_t begin, end;  // of the flat array
  int64_t own = 0;           // where this rank's part of it begins in values()
  int first = 0, last = 0;   // places
  std::vector<int> parameters;
  std::vector<std::pair<int64_t, int64_t>> padding;  // elements, from its begin
  int missing = 0;                                   // gradients, in this pass
  LentBuffer value, gradient;
  Pending gather, sum;
};

ShardedParameters::ShardedParameters(Network& network, Communicator& communicator,
                                     const GradientBuckets& buckets, int ahead)
    : network_(network), communicator_(communicator), buckets_(buckets) {
  const std::vector<LayerParameters> layers = network.trained_by_layer();
  MakeBuckets(layers);
  std::vector<BucketUse> uses;
  const auto element = static_cast<int64_t>(DTypeBytes(network.dtype()));
  for (const auto& bucket : all_) {
    uses.push_back({bucket->first, bucket->last, (bucket->end - bucket->begin) * element});
  }
  // The order of a gather or a sum is that of the places, which all ranks have alike.
  plan_ = PlanGathers(uses, places_, ahead, static_cast<int64_t>(kHeapAlignment));
  int64_t own = 0;
  for (size_t i = all_.size(); i-- > 0;) {
    all_[i]->own = own;
    const auto [begin, end] =
        PartOf(all_[i]->end - all_[i]->begin, communicator.rank(), communicator.size());
    own += end - begin;
  }
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const MemoryOwnerScope owner("sharded parameters");
  own_values_ = Zeros({own}, network.dtype(), Place::Heap());
  own_gradients_ = Zeros({own}, network.dtype(), Place::Heap(MemoryKind::kGradientStandard));
  if (!network.is_hosted()) {
    for (const auto& bucket : all_) {
      const auto [begin, end] =
          PartOf(bucket->end - bucket->begin, communicator.rank(), communicator.size());
      if (begin == end) continue;
      NDArray part = OwnPart(own_values_, bucket->number);
      CopyInto(network.parameters().Slice(0, bucket->begin + begin, bucket->begin + end), part);
    }
  }
  network.HostParameters(this);
}

ShardedParameters::~ShardedParameters() {
  try {
    network_.HostParameters(nullptr);
  } catch (const Error&) {
    // The network was moved from.
  }
}

void ShardedParameters::MakeBuckets(const std::vector<LayerParameters>& layers) {
  const auto element = DTypeBytes(network_.dtype());
  for (int number = 0; number < buckets_.count(); ++number) {
    const auto [begin, end] = buckets_.range(number);
    all_.push_back(
        std::make_unique<Bucket>(number, begin, end, static_cast<size_t>(end - begin) * element));
  }
  const std::vector<NamedParameter>& named = network_.named_parameters();
  for (size_t k = 0; k < named.size() && named[k].is_trained; ++k) {
    const NamedParameter& parameter = named[k];
    const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& bucket) {
      return bucket->begin <= parameter.begin && parameter.begin < bucket->end;
    });
    Bucket& bucket = **at;
    bucket_of_.push_back(bucket.number);
    bucket.parameters.push_back(static_cast<int>(k));
    const bool is_last = k + 1 == named.size() || !named[k + 1].is_trained;
    const int64_t next = is_last ? network_.trained_elements() : named[k + 1].begin,
                  end = parameter.begin + parameter.value.NumElements();
    if (end < next) bucket.padding.emplace_back(end - bucket.begin, next - bucket.begin);
  }
  places_ = static_cast<int>(layers.size());
  for (const auto& bucket : all_) {
    bucket->first = places_;
    bucket->last = -1;
  }
  for (int place = 0; place < places_; ++place) {
    const LayerParameters& layer = layers[static_cast<size_t>(place)];
    if (static_cast<size_t>(layer.layer) >= place_of_layer_.size())
      place_of_layer_.resize(static_cast<size_t>(layer.layer) + 1, -1);
    place_of_layer_[static_cast<size_t>(layer.layer)] = place;
    for (const int parameter : layer.parameters) {
      Bucket& bucket = *all_[static_cast<size_t>(bucket_of(parameter))];
      bucket.first = std::min(bucket.first, place);
      bucket.last = std::max(bucket.last, place);
    }
  }
}

std::pair<int64_t, int64_t> ShardedParameters::OwnOf(int number) const {
  const Bucket& bucket = *all_[static_cast<size_t>(number)];
  const auto [begin, end] =
      PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
  return {bucket.own, bucket.own + end - begin};
}

NDArray ShardedParameters::OwnPart(const NDArray& own, int number) const {
  const auto [begin, end] = OwnOf(number);
  return own.Slice(0, begin, end);
}

void ShardedParameters::Distribute(absl::FunctionRef<void(int bucket, NDArray& to)> fill) {
  DistributeInto(own_values_, fill);
}

void ShardedParameters::DistributeInto(const NDArray& own,
                                       absl::FunctionRef<void(int bucket, NDArray& to)> fill) {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const MemoryOwnerScope owner("sharded parameters");
  for (int number = buckets_.count() - 1; number >= 0; --number) {
    const Bucket& bucket = *all_[static_cast<size_t>(number)];
    NDArray whole = Zeros({bucket.end - bucket.begin}, own.dtype(), Place::Heap());
    OnRank0(communicator_, "make what it gives to all", [&] { fill(number, whole); });
    communicator_.Broadcast(ElementsOf(whole), 0, "parts");
    const auto [begin, end] =
        PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
    if (begin == end) continue;
    NDArray part = OwnPart(own, number);
    CopyInto(whole.Slice(0, begin, end), part);
  }
}

NDArray ShardedParameters::Gather(const NDArray& own, int number, const char* site) {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const MemoryOwnerScope owner("sharded parameters");
  const Bucket& bucket = *all_[static_cast<size_t>(number)];
  NDArray whole = NewHeapArray(bucket.end - bucket.begin, own.dtype());
  const auto [begin, end] =
      PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
  if (begin < end) {
    NDArray part = whole.Slice(0, begin, end);
    CopyInto(OwnPart(own, number), part);
  }
  communicator_.AllGather(ElementsOf(whole), site);
  return whole;
}

void ShardedParameters::Reserve(Pass pass) {
  const int64_t bytes = pass == Pass::kTraining ? plan_.bytes : plan_.inference_bytes;
  const auto element = static_cast<int64_t>(DTypeBytes(network_.dtype()));
  memory_ = Empty({(bytes + element - 1) / element}, network_.dtype(), Place::Scratch());
}

const NDArray& ShardedParameters::value(int parameter) const {
  return value_views_[static_cast<size_t>(parameter)];
}

const NDArray& ShardedParameters::gradient(int parameter) const {
  return gradient_views_[static_cast<size_t>(parameter)];
}

// Views are made anew where the pass's memory, or its plan, is another one than the last pass's.
void ShardedParameters::PlaceViews() {
  if (placed_for_ == pass_ && placed_at_ == memory_.raw_data()) return;
  const bool training = *pass_ == Pass::kTraining, tail = memory_.buffer()->readable_tail;
  for (const auto& bucket : all_) {
    const auto number = static_cast<size_t>(bucket->number);
    const int64_t at = training ? plan_.values[number] : plan_.inference_values[number];
    bucket->value.set_data(memory_.raw_data() + at, tail);
    if (training) bucket->gradient.set_data(memory_.raw_data() + plan_.gradients[number], tail);
  }
  value_views_.resize(bucket_of_.size());
  gradient_views_.resize(bucket_of_.size());
  for (size_t k = 0; k < bucket_of_.size(); ++k) {
    const Bucket& bucket = *all_[static_cast<size_t>(bucket_of_[k])];
    const NamedParameter& parameter = network_.named_parameters()[k];
    const Shape& shape = parameter.value.shape();
    std::array<int64_t, kMaxRank> strides;
    shape.SetDenseStrides(strides.data());
    const auto view = [&](const LentBuffer& of) {
      return NDArray::FromStrides(
          of.handle(), parameter.begin - bucket.begin, shape,
          absl::MakeConstSpan(strides.data(), static_cast<size_t>(shape.rank())), network_.dtype());
    };
    value_views_[k] = view(bucket.value);
    if (training) gradient_views_[k] = view(bucket.gradient);
  }
  placed_for_ = pass_;
  placed_at_ = memory_.raw_data();
}

void ShardedParameters::Begin(Pass pass) {
  if (pass_.has_value()) {
    ThrowFailedPrecondition(absl::StrCat(kName, ": a pass over network [", network_.name(),
                                         "] begins while another one is under way"));
  }
  if (!memory_.is_defined()) Reserve(pass);
  pass_ = pass;
  PlaceViews();
  computes_ = true;
  forward_ = -1;
  backward_ = places_;
  gathered_ = there_ = summed_ = collected_ = 0;
  for (const auto& bucket : all_) {
    bucket->missing = static_cast<int>(bucket->parameters.size());
    bucket->value.set_there(true);  // to be watched by a tape; none is read before its layer
    bucket->gradient.set_there(pass == Pass::kTraining);
  }
}

void ShardedParameters::StartGather(Bucket& bucket) {
  const auto [begin, end] =
      PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
  const size_t element = DTypeBytes(network_.dtype());
  const Elements elements(
      bucket.value.data(), bucket.end - bucket.begin,
      network_.dtype() == DType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32);
  if (begin < end) {
    std::memcpy(elements.at(begin),
                own_values_.raw_data() + static_cast<size_t>(bucket.own) * element,
                static_cast<size_t>(end - begin) * element);
  }
  communicator_.Start(CollectiveKind::kAllGather, elements, bucket.gather, "parameters");
}

void ShardedParameters::ForwardTo(int place) {
  for (; forward_ < place; ++forward_) {
    const int next = forward_ + 1;
    const auto at = static_cast<size_t>(next);
    for (const auto& bucket : all_) {
      if (next == 0 || bucket->last == next - 1) bucket->value.set_there(false);
    }
    for (; gathered_ < plan_.forward_begun[at]; ++gathered_)
      StartGather(*all_[static_cast<size_t>(plan_.forward[static_cast<size_t>(gathered_)])]);
    for (; there_ < plan_.forward_there[at]; ++there_) {
      Bucket& bucket = *all_[static_cast<size_t>(plan_.forward[static_cast<size_t>(there_)])];
      bucket.gather.Wait();
      bucket.value.set_there(true);
    }
  }
}

void ShardedParameters::BackwardTo(int place) {
  if (forward_ < places_ - 1) ForwardTo(places_ - 1);
  if (backward_ == places_ && place < places_) gathered_ = there_ = plan_.kept;
  for (; backward_ > place; --backward_) {
    const int next = backward_ - 1;
    for (; summed_ < static_cast<int>(all_.size()); ++summed_) {
      const int number = plan_.sums[static_cast<size_t>(summed_)];
      if (all_[static_cast<size_t>(number)]->first <= next) break;
      StartSum(number);
    }
    for (; collected_ < summed_ - plan_.ahead; ++collected_)
      Collect(plan_.sums[static_cast<size_t>(collected_)]);
    if (next < 0) continue;
    const auto at = static_cast<size_t>(next);
    for (const auto& bucket : all_) {
      if (bucket->first == next + 1) bucket->value.set_there(false);
      if (bucket->last != next) continue;
      const size_t element = DTypeBytes(network_.dtype());
      for (const auto& [begin, end] : bucket->padding) {
        std::memset(bucket->gradient.data() + static_cast<size_t>(begin) * element, 0,
                    static_cast<size_t>(end - begin) * element);
      }
    }
    for (; gathered_ < plan_.backward_begun[at]; ++gathered_)
      StartGather(*all_[static_cast<size_t>(plan_.backward[static_cast<size_t>(gathered_)])]);
    for (; there_ < plan_.backward_there[at]; ++there_) {
      Bucket& bucket = *all_[static_cast<size_t>(plan_.backward[static_cast<size_t>(there_)])];
      bucket.gather.Wait();
      bucket.value.set_there(true);
    }
  }
}

void ShardedParameters::StartSum(int number) {
  Bucket& bucket = *all_[static_cast<size_t>(number)];
  const Elements elements(
      bucket.gradient.data(), bucket.end - bucket.begin,
      network_.dtype() == DType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32);
  if (bucket.missing > 0) {
    if (computes_) {
      const int parameter = bucket.parameters.front();
      ThrowUnimplemented(absl::StrCat(
          kName, ": gradients of the bucket of \"",
          network_.named_parameters()[static_cast<size_t>(parameter)].name,
          "\" are not final behind its layers, expected layers without segments (Recomputed) where "
          "parameters are in parts"));
    }
    std::memset(elements.data, 0, elements.bytes());
  }
  communicator_.Start(CollectiveKind::kReduceScatter, elements, bucket.sum, "gradients");
}

void ShardedParameters::Collect(int number) {
  Bucket& bucket = *all_[static_cast<size_t>(number)];
  bucket.sum.Wait();
  const auto [begin, end] =
      PartOf(bucket.end - bucket.begin, communicator_.rank(), communicator_.size());
  if (begin == end) return;
  const size_t element = DTypeBytes(network_.dtype());
  std::memcpy(own_gradients_.raw_data() + static_cast<size_t>(bucket.own) * element,
              bucket.gradient.data() + static_cast<size_t>(begin) * element,
              static_cast<size_t>(end - begin) * element);
}

void ShardedParameters::EnterForward(int layer) {
  ForwardTo(place_of_layer_[static_cast<size_t>(layer)]);
}

void ShardedParameters::EnterBackward(int layer) {
  BackwardTo(place_of_layer_[static_cast<size_t>(layer)]);
}

void ShardedParameters::GradientIsFinal(int parameter) {
  --all_[static_cast<size_t>(bucket_of(parameter))]->missing;
}

void ShardedParameters::End() noexcept {
  try {
    // What is final is; the rest is of a pass that failed, or of none.
    if (*pass_ == Pass::kTraining) {
      bool is_final = true;
      for (const auto& bucket : all_) is_final = is_final && bucket->missing == 0;
      if (!is_final) computes_ = false;
      BackwardTo(-1);
      for (; collected_ < summed_; ++collected_)
        Collect(plan_.sums[static_cast<size_t>(collected_)]);
      own_gradients_.MarkWritten();
    } else {
      ForwardTo(places_ - 1);
    }
  } catch (const std::exception&) {
    // The communicator has ended: its next call says why.
  }
  for (const auto& bucket : all_) {
    for (Pending* const pending : {&bucket->gather, &bucket->sum}) {
      try {
        pending->Wait();
      } catch (const std::exception&) {
      }
    }
    bucket->value.set_there(false);
    bucket->gradient.set_there(false);
  }
  memory_ = NDArray();
  pass_.reset();
}

void ShardedParameters::Idle(Pass pass) {
  Begin(pass);
  computes_ = false;
  End();
}

}  // namespace tidepool::nn
