#include "tidepool/nn/distributed/sharded_files.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"

namespace tidepool::nn {
namespace {

// Arrays that are in parts, by number: the parameters, then what the updater keeps.
constexpr int kValues = 0;

const NDArray& PartsOf(const ShardedState& state, int array) {
  if (array == kValues) return state.parameters.values();
  return *state.trainer.updater().state()[static_cast<size_t>(array - 1)];
}

absl::Span<const std::byte> BytesIn(const NDArray& array) {
  return absl::MakeConstSpan(array.raw_data(),
                             static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype()));
}

// Rank 0 says which bucket of which array it wants next, and others serve, until it has none.
class Writer {
 public:
  explicit Writer(const ShardedState& state) : state_(state) {
    const std::vector<NamedParameter>& named = state.trainer.network().named_parameters();
    for (size_t k = 0; k < named.size(); ++k) numbers_[named[k].name] = static_cast<int>(k);
    for (int i = 0; i < state.trainer.updater().state_arrays(); ++i)
      updater_[UpdaterStateName(i)] = kValues + 1 + i;
  }

  NDArray Fetch(int array, int bucket) {
    Tell(array, bucket);
    return state_.parameters.Gather(PartsOf(state_, array), bucket, "saving");
  }
  void Tell(int array, int bucket) {
    std::array<double, 2> wanted = {static_cast<double>(array), static_cast<double>(bucket)};
    state_.communicator.Broadcast(absl::MakeSpan(wanted), 0, "what is to be saved");
  }

  void Write(const std::string& name, AppendBytes append) {
    if (const auto state = updater_.find(name); state != updater_.end()) {
      // In the order of the flat array.
      for (int bucket = state_.buckets.count() - 1; bucket >= 0; --bucket)
        append(BytesIn(Fetch(state->second, bucket)));
      return;
    }
    const int k = numbers_.at(name);
    const NamedParameter& parameter =
        state_.trainer.network().named_parameters()[static_cast<size_t>(k)];
    if (!parameter.is_trained) return append(BytesIn(parameter.value));
    const int bucket = state_.parameters.bucket_of(k);
    if (bucket != last_bucket_) {
      last_ = NDArray();  // one at a time
      last_ = Fetch(kValues, bucket);
      last_bucket_ = bucket;
    }
    const int64_t begin = parameter.begin - state_.buckets.range(bucket).first;
    append(BytesIn(last_.Slice(0, begin, begin + parameter.value.NumElements())));
  }

 private:
  const ShardedState& state_;
  std::map<std::string, int> numbers_, updater_;
  int last_bucket_ = -1;
  NDArray last_;
};

constexpr int kDone = -1, kFailed = -2;

void ReadParts(const ShardedState& state, const SafetensorsReader* reader) {
  Network& network = state.trainer.network();
  const std::vector<NamedParameter>& named = network.named_parameters();
  state.parameters.Distribute([&](int bucket, NDArray& to) {
    const int64_t first = state.buckets.range(bucket).first;
    for (size_t k = 0; k < named.size() && named[k].is_trained; ++k) {
      if (state.parameters.bucket_of(static_cast<int>(k)) != bucket) continue;
      const NamedParameter& parameter = named[k];
      const int64_t begin = parameter.begin - first;
      NDArray value = to.Slice(0, begin, begin + parameter.value.NumElements())
                          .Reshape(parameter.value.shape());
      ReadSafetensor(*reader, reader->Find(parameter.name), value);
    }
  });
  const auto element = DTypeBytes(network.dtype());
  for (int i = 0; i < state.trainer.updater().state_arrays(); ++i) {
    state.parameters.DistributeInto(PartsOf(state, kValues + 1 + i), [&](int bucket, NDArray& to) {
      const auto first = static_cast<uint64_t>(state.buckets.range(bucket).first);
      reader->Read(reader->Find(UpdaterStateName(i)), first * element,
                   absl::MakeSpan(to.raw_data(), static_cast<size_t>(to.NumElements()) * element));
    });
  }
  if (!network.untrained().is_defined()) return;
  OnRank0(state.communicator, "read what is not trained", [&] {
    for (const NamedParameter& parameter : named) {
      if (parameter.is_trained) continue;
      NDArray value = parameter.value;
      ReadSafetensor(*reader, reader->Find(parameter.name), value);
    }
  });
  state.communicator.Broadcast(ElementsOf(network.untrained()), 0, "what is not trained");
}

}  // namespace

void WriteSharded(const ShardedState& state, absl::FunctionRef<void(WriteTensor)> write) {
  Writer writer(state);
  if (state.communicator.rank() == 0) {
    std::exception_ptr failure;
    try {
      write([&](const std::string& name, AppendBytes append) { writer.Write(name, append); });
    } catch (...) {
      failure = std::current_exception();
    }
    writer.Tell(failure == nullptr ? kDone : kFailed, 0);
    if (failure != nullptr) std::rethrow_exception(failure);
    return;
  }
  for (;;) {
    std::array<double, 2> wanted = {};
    state.communicator.Broadcast(absl::MakeSpan(wanted), 0, "what is to be saved");
    const int array = static_cast<int>(wanted[0]);
    if (array == kDone) return;
    if (array == kFailed) {
      throw Error(absl::StatusCode::kAborted,
                  "distributed: rank 0 could not save what is in parts, as said there");
    }
    state.parameters.Gather(PartsOf(state, array), static_cast<int>(wanted[1]), "saving");
  }
}

void SaveShardedCheckpoint(const ShardedState& state, CheckpointFolder& folder,
                           const CheckpointNotes& notes) {
  const Network& network = state.trainer.network();
  const Updater& updater = state.trainer.updater();
  WriteSharded(state, [&](WriteTensor write) {
    folder.SaveBy(updater.steps(), [&](const std::string& path) {
      std::vector<std::pair<std::string, Shape>> more;
      for (int i = 0; i < updater.state_arrays(); ++i)
        more.emplace_back(UpdaterStateName(i), Shape{network.trained_elements()});
      SaveParametersInParts(
          network, path,
          CheckpointMetadata(network, updater, path, notes, state.trainer.loss_scale()), more,
          write);
    });
  });
}

std::optional<CheckpointNotes> LoadShardedCheckpoint(const ShardedState& state,
                                                     const CheckpointFolder& folder) {
  constexpr double kNone = 0, kReads = 1, kCannot = 2;
  double told = kNone;
  const auto tell = [&] {
    state.communicator.Broadcast(absl::MakeSpan(&told, 1), 0, "whether there is a checkpoint");
  };
  std::optional<CheckpointNotes> notes;
  if (state.communicator.rank() != 0) {
    tell();
    if (told == kCannot) {
      throw Error(absl::StatusCode::kAborted,
                  "distributed: rank 0 could not load the checkpoint, as said there");
    }
    if (told == kReads) ReadParts(state, nullptr);
  } else {
    try {
      if (const std::optional<std::string> latest = folder.Latest()) {
        notes =
            LoadCheckpointInParts(*latest, state.trainer.network(), state.trainer.updater(),
                                  state.trainer.loss_scale(), [&](const SafetensorsReader& reader) {
                                    told = kReads;
                                    tell();
                                    ReadParts(state, &reader);
                                  });
      } else {
        tell();
      }
    } catch (...) {
      if (told == kNone) {
        told = kCannot;
        tell();
      }
      throw;
    }
  }
  BroadcastNotes(state.communicator, notes);
  return notes;
}

}  // namespace tidepool::nn
