// DistributedTrainer: what ranks begin with, and what is saved and evaluated of what they have.
#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/sharded_files.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "distributed";

}  // namespace

void DistributedTrainer::TakeParts() {
  Network& network = trainer_.network();
  Updater& updater = trainer_.updater();
  if (updater.config().clipping.kind == ClippingKind::kNormOfEach) {
    ThrowUnimplemented(absl::StrCat(
        kName,
        ": parameters in parts with clipping by each one's norm, expected another clipping"));
  }
  if (config_.gather_ahead < 0) {
    ThrowInvalidArgument(absl::StrCat(kName, ": ", config_.gather_ahead,
                                      " buckets are gathered ahead, expected 0 or more"));
  }
  network.CheckCanBeHosted();
  const bool was_hosted = network.is_hosted();
  // Of a network that has its parameters, and what was loaded into it.
  if (!was_hosted) BroadcastState(/*parameters=*/true);
  updater.KeepOnly(buckets_.OwnRanges());
  sharded_ =
      std::make_unique<ShardedParameters>(network, communicator_, buckets_, config_.gather_ahead);
  if (!was_hosted) return;
  if (network.untrained().is_defined())
    communicator_.Broadcast(ElementsOf(network.untrained()), 0, "what is not trained");
  BroadcastState(/*parameters=*/false);
  sharded_->Distribute([&](int bucket, NDArray& to) {
    const int64_t first = buckets_.range(bucket).first;
    const std::vector<NamedParameter>& named = network.named_parameters();
    for (size_t k = 0; k < named.size() && named[k].is_trained; ++k) {
      if (sharded_->bucket_of(static_cast<int>(k)) != bucket) continue;
      const int64_t begin = named[k].begin - first;
      NDArray value =
          to.Slice(0, begin, begin + named[k].value.NumElements()).Reshape(named[k].value.shape());
      CopyInto(network.InitialValue(static_cast<int>(k)), value);
    }
  });
}

void DistributedTrainer::BroadcastState(bool parameters) {
  Network& network = trainer_.network();
  Updater& updater = trainer_.updater();
  LossScale* const scale = trainer_.loss_scale();
  if (parameters) {
    communicator_.Broadcast(ElementsOf(network.arrays()), 0, "parameters");
    for (const NDArray* const state : updater.state()) {
      communicator_.Broadcast(ElementsOf(state->Reshape({state->NumElements()})), 0,
                              "updater's state");
    }
  }
  std::array<double, 7> numbers = {static_cast<double>(updater.steps()),
                                   static_cast<double>(updater.epoch()),
                                   static_cast<double>(network.step())};
  if (scale != nullptr) {
    numbers[3] = scale->scale();
    numbers[4] = static_cast<double>(scale->good_steps());
    numbers[5] = static_cast<double>(scale->skipped());
    numbers[6] = static_cast<double>(scale->stuck());
  }
  communicator_.Broadcast(absl::MakeSpan(numbers), 0, "counters");
  updater.set_steps(static_cast<int64_t>(numbers[0]));
  updater.set_epoch(static_cast<int64_t>(numbers[1]));
  network.set_step(static_cast<uint64_t>(numbers[2]));
  if (scale != nullptr) {
    scale->Restore(numbers[3], static_cast<int64_t>(numbers[4]), static_cast<int64_t>(numbers[5]),
                   static_cast<int64_t>(numbers[6]));
  }
}

void DistributedTrainer::SaveLatest(CheckpointFolder& folder, const CheckpointNotes& notes) {
  if (sharded_ != nullptr) {
    return SaveShardedCheckpoint({trainer_, communicator_, buckets_, *sharded_}, folder, notes);
  }
  if (!config_.shard_updater) return nn::SaveLatest(communicator_, trainer_, folder, notes);
  const Updater& updater = trainer_.updater();
  std::optional<Updater> whole;
  OnRank0(communicator_, "make room for the updater's state", [&] {
    trainer_.CheckLayout();
    whole.emplace(updater.config(), trainer_.network().parameters().shape(), Host(),
                  trainer_.network().dtype());
    whole->set_steps(updater.steps());
    whole->set_epoch(updater.epoch());
  });
  GatherState(whole.has_value() ? &*whole : nullptr);
  OnRank0(communicator_, "save the checkpoint",
          [&] { folder.Save(trainer_.network(), *whole, notes, trainer_.loss_scale()); });
}

std::optional<CheckpointNotes> DistributedTrainer::LoadLatest(const CheckpointFolder& folder) {
  if (sharded_ == nullptr) {
    ThrowFailedPrecondition(
        absl::StrCat(kName,
                     ": LoadLatest of whole parameters, expected nn::LoadLatest before there is a "
                     "DistributedTrainer, or shard_parameters"));
  }
  std::optional<CheckpointNotes> notes =
      LoadShardedCheckpoint({trainer_, communicator_, buckets_, *sharded_}, folder);
  BroadcastState(/*parameters=*/false);
  return notes;
}

void DistributedTrainer::SaveModel(const Model& model, const std::string& path) {
  if (model.network.get() != &trainer_.network()) {
    ThrowInvalidArgument(absl::StrCat(kName, ": SaveModel of model \"", model.name,
                                      "\", expected that of the trainer's network [",
                                      trainer_.network().name(), "]"));
  }
  if (sharded_ == nullptr) {
    return OnRank0(communicator_, "save the model", [&] { nn::SaveModel(model, path); });
  }
  WriteSharded({trainer_, communicator_, buckets_, *sharded_},
               [&](WriteTensor write) { SaveModelInParts(model, path, write); });
}

std::optional<Batch> DistributedTrainer::NextForAll(
    absl::FunctionRef<std::optional<Batch>()> next) {
  if (sharded_ == nullptr) return next();
  constexpr auto kInference = ParameterHost::Pass::kInference;
  for (;;) {
    std::exception_ptr failure;
    std::optional<Batch> batch;
    std::array<double, 2> told = {};  // ranks with a batch, ranks that failed
    try {
      sharded_->Reserve(kInference);
      batch = next();
      told[0] = batch.has_value() ? 1 : 0;
    } catch (...) {
      failure = std::current_exception();
      told[1] = 1;
    }
    communicator_.AllReduce(absl::MakeSpan(told), "batches to evaluate");
    if (failure == nullptr && told[1] == 0 && batch.has_value()) return batch;
    if (told[1] > 0 || told[0] == 0) sharded_->ReleaseReserve();
    if (failure != nullptr) std::rethrow_exception(failure);
    if (told[1] > 0) {
      throw Error(absl::StatusCode::kAborted,
                  absl::StrCat(kName, ": ", told[1],
                               " ranks could not make a batch to evaluate, as said there"));
    }
    if (told[0] == 0) return std::nullopt;
    sharded_->Idle(kInference);
  }
}

void DistributedTrainer::GatherState(Updater* whole) {
  const HandlesOwnScope handles;
  const std::vector<const NDArray*> state = trainer_.updater().state();
  for (size_t i = 0; i < state.size(); ++i) {
    int64_t at = 0;  // in this rank's state
    for (int number = buckets_.count() - 1; number >= 0; --number) {
      const auto [begin, end] = buckets_.range(number);
      const auto [mine, mine_end] = PartOf(end - begin, communicator_.rank(), communicator_.size());
      NDArray bucket = Empty({end - begin}, state[i]->dtype(), Place::Heap());
      if (mine < mine_end) {
        NDArray part = bucket.Slice(0, mine, mine_end);
        CopyInto(state[i]->Slice(0, at, at + mine_end - mine), part);
        at += mine_end - mine;
      }
      communicator_.AllGather(ElementsOf(bucket), "updater's state");
      if (whole == nullptr) continue;
      NDArray to = whole->state()[i]->Slice(0, begin, end);
      CopyInto(bucket, to);
    }
  }
}

}  // namespace tidepool::nn
