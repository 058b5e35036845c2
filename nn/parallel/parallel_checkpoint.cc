// ParallelWrapper: checkpoints with every worker's updater.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/nn/parallel/parallel_worker.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {

std::vector<std::pair<std::string, NDArray>> ParallelWrapper::StatesOfOthers(const char* call) {
  if (fitting_) {
    ThrowFailedPrecondition(absl::StrCat(kParallelWrapper, ": ", call,
                                         " while a pass is under way, expected behind it"));
  }
  CheckLayout();
  std::vector<std::pair<std::string, NDArray>> states;
  const bool have_their_own =
      config_.training == ParallelTraining::kParameterAveraging && !config_.average_updaters;
  if (!have_their_own) return states;
  FollowUpdater();
  for (size_t worker = 0; worker < replicas_.size(); ++worker) {
    const std::vector<const NDArray*> arrays = replicas_[worker]->trainer->updater().state();
    for (size_t i = 0; i < arrays.size(); ++i) {
      states.emplace_back(
          absl::StrCat("worker/", worker + 1, "/", UpdaterStateName(static_cast<int>(i))),
          *arrays[i]);
    }
  }
  return states;
}

void ParallelWrapper::SaveCheckpoint(const std::string& path, const CheckpointNotes& notes) {
  trainer_.Settle();
  const Updater& updater = trainer_.updater();
  const std::vector<const NDArray*> own = updater.state();
  std::vector<std::pair<std::string, NDArray>> arrays = StatesOfOthers("SaveCheckpoint");
  // Before the first pass they are what that will begin with.
  for (size_t i = 0; !has_fitted_ && i < arrays.size(); ++i)
    arrays[i].second = *own[i % own.size()];
  for (size_t i = 0; i < own.size(); ++i)
    arrays.emplace_back(UpdaterStateName(static_cast<int>(i)), *own[i]);
  SaveParameters(
      trainer_.network(), path,
      CheckpointMetadata(trainer_.network(), updater, path, notes, trainer_.loss_scale()), arrays);
}

CheckpointNotes ParallelWrapper::LoadCheckpoint(const std::string& path) {
  trainer_.Settle();
  std::vector<std::pair<std::string, NDArray>> others = StatesOfOthers("LoadCheckpoint");
  std::vector<std::string> names;
  for (const auto& [name, array] : others) names.push_back(name);
  const CheckpointNotes notes = LoadCheckpointInParts(
      path, trainer_.network(), trainer_.updater(), trainer_.loss_scale(),
      [&](const SafetensorsReader& reader) {
        ReadCheckpointArrays(reader, trainer_.network(), trainer_.updater());
        for (auto& [name, array] : others) ReadSafetensor(reader, reader.Find(name), array);
      },
      names);
  has_fitted_ = true;  // the next pass begins with these
  return notes;
}

}  // namespace tidepool::nn
