#include "tidepool/nn/training/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {
namespace {

constexpr char kFormat[] = "tidepool checkpoint";
constexpr absl::string_view kPrefix = "step-", kSuffix = ".safetensors";
// Beyond them is no run of training, and there is room to count on.
constexpr int64_t kMostSteps = int64_t{1} << 53;

// A name that Save() gives: others in the folder are the user's.
bool IsCheckpointName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumeSuffix(&name, kSuffix) ||
      name.size() < 9)
    return false;
  if (name.size() > 9 && name[0] == '0') return false;
  return name.find_first_not_of("0123456789") == absl::string_view::npos;
}

bool IsOurs(const std::string& field) {
  return field == "format" || field == "updater" || field == "exact_updater" || field == "steps" ||
         field == "epoch" || field == "random_step" || field == "random_seed" ||
         field == "architecture" || field == "frozen" || field == "loss_scale" ||
         field == "loss_scale_config" || field == "loss_scale_steps" || field == "compute_type";
}

constexpr absl::string_view kNone = "none";

// What layers compute by.
std::string ComputeTypeOf(const Network& network) {
  return DTypeName(network.compute_type().value_or(network.dtype()));
}

// Names of what is frozen, which the updater's state hangs on.
std::string FrozenOf(const Network& network) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (parameter.is_frozen) names.push_back(parameter.name);
  }
  return names.empty() ? std::string(kNone) : absl::StrJoin(names, " ");
}

// As far as the file has the field: those of before there was any have what none stands for.
std::string FieldOrNone(const SafetensorsReader& reader, const char* name) {
  const auto found = reader.metadata().find(name);
  return found != reader.metadata().end() ? found->second : std::string(kNone);
}

const std::string& Field(const SafetensorsReader& reader, const std::string& path,
                         const char* name) {
  const auto found = reader.metadata().find(name);
  if (found != reader.metadata().end()) return found->second;
  ThrowDataLoss(absl::StrCat(path, ": metadata has no \"", name, "\", expected a checkpoint"));
}

int64_t Counter(const SafetensorsReader& reader, const std::string& path, const char* name) {
  const std::string& text = Field(reader, path, name);
  int64_t value;
  const bool is_digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_digits && absl::SimpleAtoi(text, &value) && value <= kMostSteps) return value;
  ThrowDataLoss(absl::StrCat(path, ": metadata \"", name, "\" holds ", QuotedFromFile(text),
                             ", expected a number from 0 to ", kMostSteps));
}

void CheckIs(const std::string& path, const char* name, const std::string& found,
             const std::string& expected) {
  if (found == expected) return;
  ThrowDataLoss(absl::StrCat(path, ": metadata \"", name, "\" is ", QuotedFromFile(found),
                             ", expected ", QuotedFromFile(expected)));
}

void CheckField(const SafetensorsReader& reader, const std::string& path, const char* name,
                const std::string& expected) {
  CheckIs(path, name, Field(reader, path, name), expected);
}

struct Counters {
  int64_t steps, epoch, random_step;
};

// What any trainer needs. Throws kDataLoss.
Counters CountersOf(const SafetensorsReader& reader, const std::string& path) {
  CheckField(reader, path, "format", kFormat);
  return {Counter(reader, path, "steps"), Counter(reader, path, "epoch"),
          Counter(reader, path, "random_step")};
}

void ReadLossScale(const SafetensorsReader& reader, const std::string& path, LossScale* scale) {
  const std::string& text = Field(reader, path, "loss_scale");
  const std::string& steps = Field(reader, path, "loss_scale_steps");
  double value = 0;
  std::vector<int64_t> counts;
  bool is_good = absl::SimpleAtod(text, &value) && value >= scale->config().least &&
                 value <= scale->config().most;
  for (const absl::string_view part : absl::StrSplit(steps, ' ')) {
    int64_t count = -1;
    is_good = is_good && absl::SimpleAtoi(part, &count) && count >= 0 && count <= kMostSteps;
    counts.push_back(count);
  }
  if (!is_good || counts.size() != 3) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"loss_scale\" is ", QuotedFromFile(text),
                               " and \"loss_scale_steps\" ", QuotedFromFile(steps),
                               ", expected a scale and three numbers of steps of ",
                               scale->config().ToString()));
  }
  scale->Restore(value, counts[0], counts[1], counts[2]);
}

// As Latest() looks at it. What cannot be opened for another reason may be whole.
bool IsWhole(const std::string& path) {
  try {
    CountersOf(SafetensorsReader::Open(path), OneLine(path));
    return true;
  } catch (const Error& error) {
    return error.code() != absl::StatusCode::kDataLoss;
  }
}

// What a loop of one's own hands in may have been made before the network was frozen or not: as far as sizes tell.
void CheckFits(const Updater& updater, const Network& network, const char* who) {
  if (network.is_hosted()) return;
  updater.CheckKeepsAll(who);
  for (const NDArray* state : updater.state()) {
    if (state->NumElements() == network.trained_elements()) continue;
    ThrowFailedPrecondition(absl::StrCat(who, ": the updater's state has ", state->NumElements(),
                                         " elements, expected ", network.trained_elements(),
                                         " as network [", network.name(),
                                         "] trains: an updater made behind the last SetFrozen"));
  }
}

}  // namespace

// Slashes cannot be in names of parameters' parts, which are words with dots between.
std::string UpdaterStateName(int i) { return absl::StrCat("updater/", i); }

std::map<std::string, std::string> CheckpointMetadata(const Network& network,
                                                      const Updater& updater,
                                                      const std::string& path,
                                                      const CheckpointNotes& notes,
                                                      const LossScale* loss_scale) {
  std::map<std::string, std::string> metadata = notes;
  for (const auto& [name, value] : notes) {
    if (!IsOurs(name)) continue;
    ThrowInvalidArgument(absl::StrCat("checkpoint ", path, ": a note is called \"", name,
                                      "\", as a field of the file is"));
  }
  metadata["format"] = kFormat;
  metadata["updater"] = updater.config().ToString();
  metadata["exact_updater"] = updater.config().ToExactString();
  metadata["steps"] = absl::StrCat(updater.steps());
  metadata["epoch"] = absl::StrCat(updater.epoch());
  metadata["random_step"] = absl::StrCat(network.step());
  metadata["random_seed"] = absl::StrCat(network.seed());
  metadata["architecture"] = network.Describe();
  metadata["compute_type"] = ComputeTypeOf(network);
  metadata["frozen"] = FrozenOf(network);
  if (loss_scale != nullptr) {
    // A power of the growth and backoff, not a number with few digits: written so that it is read back as it was.
    metadata["loss_scale"] = absl::StrFormat("%.17g", loss_scale->scale());
    metadata["loss_scale_config"] = loss_scale->config().ToString();
    metadata["loss_scale_steps"] = absl::StrCat(loss_scale->good_steps(), " ",
                                                loss_scale->skipped(), " ", loss_scale->stuck());
  }
  return metadata;
}

void SaveCheckpoint(const Network& network, const Updater& updater, const std::string& path,
                    const CheckpointNotes& notes, const LossScale* loss_scale) {
  CheckFits(updater, network, "SaveCheckpoint");
  const std::map<std::string, std::string> metadata =
      CheckpointMetadata(network, updater, path, notes, loss_scale);
  std::vector<std::pair<std::string, NDArray>> arrays;
  const std::vector<const NDArray*> state = updater.state();
  for (size_t i = 0; i < state.size(); ++i)
    arrays.emplace_back(UpdaterStateName(static_cast<int>(i)), *state[i]);
  SaveParameters(network, path, metadata, arrays);
}

void SaveCheckpoint(Trainer& trainer, const std::string& path, const CheckpointNotes& notes) {
  trainer.Settle();
  trainer.CheckLayout();
  SaveCheckpoint(trainer.network(), trainer.updater(), path, notes, trainer.loss_scale());
}

CheckpointNotes LoadCheckpoint(const std::string& path, Trainer& trainer) {
  trainer.Settle();
  trainer.CheckLayout();
  return LoadCheckpoint(path, trainer.network(), trainer.updater(), trainer.loss_scale());
}

CheckpointNotes LoadCheckpoint(const std::string& file, Network& network, Updater& updater,
                               LossScale* loss_scale) {
  CheckFits(updater, network, "LoadCheckpoint");
  return LoadCheckpointInParts(
      file, network, updater, loss_scale,
      [&](const SafetensorsReader& reader) { ReadCheckpointArrays(reader, network, updater); });
}

void ReadCheckpointArrays(const SafetensorsReader& reader, Network& network, Updater& updater) {
  ReadParameters(reader, network);
  const std::vector<const NDArray*> state = updater.state();
  for (size_t i = 0; i < state.size(); ++i) {
    NDArray array = *state[i];
    ReadSafetensor(reader, reader.Find(UpdaterStateName(static_cast<int>(i))), array);
  }
}

CheckpointNotes LoadCheckpointInParts(const std::string& file, Network& network, Updater& updater,
                                      LossScale* loss_scale,
                                      absl::FunctionRef<void(const SafetensorsReader& reader)> read,
                                      absl::Span<const std::string> more) {
  const std::string path = OneLine(file);
  const SafetensorsReader reader = SafetensorsReader::Open(file);
  const Counters counters = CountersOf(reader, path);
  CheckField(reader, path, "architecture", network.Describe());
  CheckField(reader, path, "updater", updater.config().ToString());
  // Files of before there was such a field have none to compare with.
  if (reader.metadata().count("exact_updater") > 0)
    CheckField(reader, path, "exact_updater", updater.config().ToExactString());
  CheckIs(path, "frozen", FieldOrNone(reader, "frozen"), FrozenOf(network));
  CheckIs(path, "loss_scale_config", FieldOrNone(reader, "loss_scale_config"),
          loss_scale != nullptr ? loss_scale->config().ToString() : std::string(kNone));
  if (reader.metadata().count("compute_type") > 0)
    CheckField(reader, path, "compute_type", ComputeTypeOf(network));
  // Of what layers draw.
  const std::string seed = absl::StrCat(network.seed());
  if (network.is_random() && reader.metadata().count("random_seed") > 0)
    CheckField(reader, path, "random_seed", seed);
  LossScale resumed;
  if (loss_scale != nullptr) {
    resumed = *loss_scale;
    ReadLossScale(reader, path, &resumed);
  }
  std::vector<NamedSpec> expected;
  for (const NamedParameter& parameter : network.named_parameters()) {
    expected.push_back(
        {parameter.name, {.name = parameter.name, .shape = parameter.value.shape()}});
  }
  for (int i = 0; i < updater.state_arrays(); ++i) {
    expected.push_back({UpdaterStateName(i), {.shape = {network.trained_elements()}}});
  }
  for (const std::string& name : more)
    expected.push_back({name, {.shape = {network.trained_elements()}}});
  CheckParameters(reader, path, expected, network.dtype());
  read(reader);
  updater.set_steps(counters.steps);
  updater.set_epoch(counters.epoch);
  network.set_step(static_cast<uint64_t>(counters.random_step));
  if (loss_scale != nullptr) *loss_scale = resumed;
  CheckpointNotes notes;
  for (const auto& [name, value] : reader.metadata()) {
    if (!IsOurs(name)) notes[name] = value;
  }
  return notes;
}

CheckpointFolder::CheckpointFolder(std::string folder, Options options)
    : folder_(std::move(folder)), options_(options) {
  if (options_.keep < 1)
    ThrowInvalidArgument(
        absl::StrCat("checkpoints: keep is ", options_.keep, ", expected at least 1"));
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) ThrowErrno(error.value(), absl::StrCat("checkpoints: make folder ", folder_));
}

std::vector<std::string> CheckpointFolder::All() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (IsCheckpointName(name) && entry.is_regular_file(ignored)) names.push_back(std::move(name));
  }
  if (error) ThrowErrno(error.value(), absl::StrCat("checkpoints: read folder ", folder_));
  // By steps, which have as many digits up to a billion and more beyond.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  for (std::string& name : names) name = absl::StrCat(folder_, "/", name);
  return names;
}

std::optional<std::string> CheckpointFolder::Latest() const {
  std::vector<std::string> all = All();
  std::string newest_flaw;
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    try {
      CountersOf(SafetensorsReader::Open(*path), OneLine(*path));
      return std::move(*path);
    } catch (const Error& error) {
      if (error.code() != absl::StatusCode::kDataLoss) throw;
      if (path == all.rbegin()) newest_flaw = error.message();
      TellDamaged(absl::StrCat("checkpoints: a damaged one is passed over: ", error.message()));
    }
  }
  if (all.empty()) return std::nullopt;
  ThrowDataLoss(absl::StrCat(
      "checkpoints: found none in folder ", OneLine(folder_), " that is whole among ", all.size(),
      ", expected one, or an empty folder to begin anew; the newest: ", newest_flaw));
}

void CheckpointFolder::TellDamaged(const std::string& warning) const {
  if (options_.on_damaged != nullptr) return options_.on_damaged(warning);
  std::fprintf(stderr, "tidepool: %s\n", warning.c_str());
}

std::string CheckpointFolder::Save(Trainer& trainer, const CheckpointNotes& notes) {
  trainer.Settle();
  trainer.CheckLayout();
  return Save(trainer.network(), trainer.updater(), notes, trainer.loss_scale());
}

std::string CheckpointFolder::Save(const Network& network, const Updater& updater,
                                   const CheckpointNotes& notes, const LossScale* loss_scale) {
  return SaveBy(updater.steps(), [&](const std::string& path) {
    SaveCheckpoint(network, updater, path, notes, loss_scale);
  });
}

// A writer that was killed was at another step than the next one is, and a temporary file goes only with an AtomicFile of the same path.
void CheckpointFolder::RemoveLeftFiles() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    // <name>.tidepool-<number>.tmp
    const std::string name = entry.path().filename().string();
    const size_t end = name.find(".tidepool-");
    if (end == std::string::npos || !absl::EndsWith(name, ".tmp") ||
        !IsCheckpointName(name.substr(0, end)))
      continue;
    names.push_back(name.substr(0, end));
  }
  for (const std::string& name : names) {
    try {
      const AtomicFile removes(absl::StrCat(folder_, "/", name));
    } catch (const Error&) {
      // It is in nobody's way.
    }
  }
}

std::string CheckpointFolder::SaveBy(int64_t steps,
                                     absl::FunctionRef<void(const std::string& path)> write) {
  std::string digits = absl::StrCat(steps);
  if (digits.size() < 9) digits.insert(0, 9 - digits.size(), '0');
  const std::string path = absl::StrCat(folder_, "/", kPrefix, digits, kSuffix);
  RemoveLeftFiles();
  write(path);
  // A run that went back to an earlier step has files of later ones: those are the old run's, and the new one is never removed.
  const std::vector<std::string> all = All();
  int64_t kept = 1;
  for (auto old = all.rbegin(); old != all.rend(); ++old) {
    if (*old == path) continue;
    if (kept < options_.keep) {
      kept += IsWhole(*old) ? 1 : 0;
      continue;
    }
    std::error_code ignored;
    std::filesystem::remove(*old, ignored);
  }
  return path;
}

}  // namespace tidepool::nn
