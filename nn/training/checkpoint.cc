#include "tidepool/nn/training/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/error.h"
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
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumeSuffix(&name, kSuffix) || name.size() < 9) return false;
  if (name.size() > 9 && name[0] == '0') return false;
  return name.find_first_not_of("0123456789") == absl::string_view::npos;
}

// Slashes cannot be in names of parameters' parts, which are words with dots between.
std::string StateName(size_t i) { return absl::StrCat("updater/", i); }

bool IsOurs(const std::string& field) {
  return field == "format" || field == "updater" || field == "steps" || field == "epoch" || field == "random_step" ||
         field == "architecture";
}

const std::string& Field(const SafetensorsReader& reader, const std::string& path, const char* name) {
  const auto found = reader.metadata().find(name);
  if (found != reader.metadata().end()) return found->second;
  ThrowDataLoss(absl::StrCat(path, ": metadata has no \"", name, "\", expected a checkpoint"));
}

int64_t Counter(const SafetensorsReader& reader, const std::string& path, const char* name) {
  const std::string& text = Field(reader, path, name);
  int64_t value;
  const bool is_digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_digits && absl::SimpleAtoi(text, &value) && value <= kMostSteps) return value;
  ThrowDataLoss(absl::StrCat(path, ": metadata \"", name, "\" holds ", QuotedFromFile(text), ", expected a number from 0 to ", kMostSteps));
}

void CheckField(const SafetensorsReader& reader, const std::string& path, const char* name, const std::string& expected) {
  const std::string& found = Field(reader, path, name);
  if (found == expected) return;
  ThrowDataLoss(absl::StrCat(path, ": metadata \"", name, "\" is ", QuotedFromFile(found), ", expected ", QuotedFromFile(expected)));
}

}  // namespace

void SaveCheckpoint(const Network& network, const Updater& updater, const std::string& path, const CheckpointNotes& notes) {
  std::map<std::string, std::string> metadata = notes;
  for (const auto& [name, value] : notes) {
    if (!IsOurs(name)) continue;
    ThrowInvalidArgument(absl::StrCat("checkpoint ", path, ": a note is called \"", name, "\", as a field of the file is"));
  }
  metadata["format"] = kFormat;
  metadata["updater"] = updater.config().ToString();
  metadata["steps"] = absl::StrCat(updater.steps());
  metadata["epoch"] = absl::StrCat(updater.epoch());
  metadata["random_step"] = absl::StrCat(network.step());
  metadata["architecture"] = network.Describe();
  std::vector<std::pair<std::string, NDArray>> arrays;
  const std::vector<const NDArray*> state = updater.state();
  for (size_t i = 0; i < state.size(); ++i) arrays.emplace_back(StateName(i), *state[i]);
  SaveParameters(network, path, metadata, arrays);
}

CheckpointNotes LoadCheckpoint(const std::string& file, Network& network, Updater& updater) {
  const std::string path = OneLine(file);
  const SafetensorsReader reader = SafetensorsReader::Open(file);
  CheckField(reader, path, "format", kFormat);
  CheckField(reader, path, "architecture", network.Describe());
  CheckField(reader, path, "updater", updater.config().ToString());
  const int64_t steps = Counter(reader, path, "steps"), epoch = Counter(reader, path, "epoch"),
                random_step = Counter(reader, path, "random_step");
  std::vector<NamedSpec> expected;
  for (const NamedParameter& parameter : network.named_parameters()) {
    expected.push_back({parameter.name, {.name = parameter.name, .shape = parameter.value.shape()}});
  }
  const std::vector<const NDArray*> state = updater.state();
  for (size_t i = 0; i < state.size(); ++i) expected.push_back({StateName(i), {.shape = state[i]->shape()}});
  CheckParameters(reader, path, expected, network.dtype());

  ReadParameters(reader, network);
  for (size_t i = 0; i < state.size(); ++i) {
    NDArray array = *state[i];
    ReadSafetensor(reader, reader.Find(StateName(i)), array);
  }
  updater.set_steps(steps);
  updater.set_epoch(epoch);
  network.set_step(static_cast<uint64_t>(random_step));
  CheckpointNotes notes;
  for (const auto& [name, value] : reader.metadata()) {
    if (!IsOurs(name)) notes[name] = value;
  }
  return notes;
}

CheckpointFolder::CheckpointFolder(std::string folder, Options options) : folder_(std::move(folder)), options_(options) {
  if (options_.keep < 1) ThrowInvalidArgument(absl::StrCat("checkpoints: keep is ", options_.keep, ", expected at least 1"));
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
  if (all.empty()) return std::nullopt;
  return std::move(all.back());
}

std::string CheckpointFolder::Save(const Network& network, const Updater& updater, const CheckpointNotes& notes) {
  std::string digits = absl::StrCat(updater.steps());
  if (digits.size() < 9) digits.insert(0, 9 - digits.size(), '0');
  const std::string path = absl::StrCat(folder_, "/", kPrefix, digits, kSuffix);
  SaveCheckpoint(network, updater, path, notes);
  // A run that went back to an earlier step has files of later ones: those are the old run's, and the new one is never removed.
  std::vector<std::string> all = All();
  int64_t excess = static_cast<int64_t>(all.size()) - options_.keep;
  for (const std::string& old : all) {
    if (excess <= 0) break;
    if (old == path) continue;
    std::error_code ignored;
    std::filesystem::remove(old, ignored);
    --excess;
  }
  return path;
}

}  // namespace tidepool::nn
