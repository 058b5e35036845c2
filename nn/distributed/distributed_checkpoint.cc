#include "tidepool/nn/distributed/distributed_checkpoint.h"

#include <array>
#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {
namespace {

template <typename T>
T NumberOf(const CheckpointNotes& notes, const std::string& name) {
  const auto found = notes.find(name);
  T value = 0;
  if (found == notes.end() || !absl::SimpleAtoi(found->second, &value)) {
    ThrowDataLoss(absl::StrCat("checkpoint: note \"", name, "\" is ",
                               found == notes.end() ? "missing" : QuotedFromFile(found->second),
                               ", expected a number: a place in the data of a job"));
  }
  return value;
}

void BroadcastText(Communicator& communicator, std::string& text) {
  double bytes = static_cast<double>(text.size());
  communicator.Broadcast(absl::MakeSpan(&bytes, 1), 0, "length of a note");
  text.resize(static_cast<size_t>(bytes));
  communicator.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size()), 0,
                         "note");
}

}  // namespace

void OnRank0(Communicator& communicator, const char* what, absl::FunctionRef<void()> work) {
  std::exception_ptr failure;
  if (communicator.rank() == 0) {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  double failed = failure != nullptr ? 1 : 0;
  communicator.Broadcast(absl::MakeSpan(&failed, 1), 0, "whether rank 0 could");
  if (failure != nullptr) std::rethrow_exception(failure);
  if (failed != 0) {
    throw Error(absl::StatusCode::kAborted,
                absl::StrCat("distributed: rank 0 could not ", what, ", as said there"));
  }
}

CheckpointNotes DataPosition::ToNotes() const {
  return {{"data_examples", absl::StrCat(examples)},
          {"data_together", absl::StrCat(together)},
          {"data_seed", absl::StrCat(seed)},
          {"data_epoch", absl::StrCat(epoch)},
          {"data_batch", absl::StrCat(batch)}};
}

DataPosition DataPosition::FromNotes(const CheckpointNotes& notes) {
  DataPosition at;
  at.examples = NumberOf<int64_t>(notes, "data_examples");
  at.together = NumberOf<int64_t>(notes, "data_together");
  at.seed = NumberOf<uint64_t>(notes, "data_seed");
  at.epoch = NumberOf<uint64_t>(notes, "data_epoch");
  at.batch = NumberOf<int64_t>(notes, "data_batch");
  return at;
}

void DataPosition::CheckIsIn(int64_t its_examples, int64_t its_together, uint64_t its_seed) const {
  if (examples == its_examples && together == its_together && seed == its_seed) {
    const int64_t batches = together < 1 ? 0 : examples / together + (examples % together != 0);
    if (batch >= 0 && batch <= batches) return;
    ThrowDataLoss(absl::StrCat("checkpoint: data_batch is ", batch, ", expected 0 to ", batches));
  }
  const auto text = [](int64_t e, int64_t t, uint64_t s) {
    return absl::StrCat("batches of ", t, " of ", e, " examples by seed ", s);
  };
  ThrowFailedPrecondition(absl::StrCat("checkpoint: its place in the data is in ",
                                       text(examples, together, seed), ", expected ",
                                       text(its_examples, its_together, its_seed)));
}

void SaveLatest(Communicator& communicator, Trainer& trainer, CheckpointFolder& folder,
                const CheckpointNotes& notes) {
  OnRank0(communicator, "save the checkpoint", [&] { folder.Save(trainer, notes); });
}

std::optional<CheckpointNotes> LoadLatest(Communicator& communicator, Trainer& trainer,
                                          const CheckpointFolder& folder) {
  std::optional<CheckpointNotes> notes;
  OnRank0(communicator, "load the checkpoint", [&] {
    const std::optional<std::string> latest = folder.Latest();
    if (latest.has_value()) notes = LoadCheckpoint(*latest, trainer);
  });
  BroadcastNotes(communicator, notes);
  return notes;
}

void BroadcastNotes(Communicator& communicator, std::optional<CheckpointNotes>& notes) {
  double count = notes.has_value() ? static_cast<double>(notes->size()) : -1;
  communicator.Broadcast(absl::MakeSpan(&count, 1), 0, "number of notes");
  if (count < 0) return notes.reset();
  std::vector<std::pair<std::string, std::string>> texts;
  if (notes.has_value()) texts.assign(notes->begin(), notes->end());
  texts.resize(static_cast<size_t>(count));
  notes.emplace();
  for (auto& [name, value] : texts) {
    BroadcastText(communicator, name);
    BroadcastText(communicator, value);
    notes->emplace(name, value);
  }
}

}  // namespace tidepool::nn
