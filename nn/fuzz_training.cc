// Files that go into a network that is there: parameters and checkpoints. What is refused has changed nothing.
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/testing/file_mutators.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

Network NewNetwork(uint64_t seed) {
  return Network({6}, {Dense(8, Activation::kTanh), BatchNormalization(), Dense(3)}, seed);
}

std::string FileOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string BytesOf(const NDArray& array) {
  return {reinterpret_cast<const char*>(array.raw_data()),
          static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype())};
}

void ExpectHolds(const SafetensorsReader& reader, const std::string& name, const NDArray& array) {
  const SafetensorInfo& info = reader.Find(name);
  ASSERT_EQ(absl::MakeConstSpan(info.shape), array.shape().span());
  ASSERT_EQ(info.bytes(), BytesOf(array).size());
  ASSERT_EQ(std::memcmp(reader.data(info).data(), array.raw_data(), info.bytes()), 0) << name;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// ---- parameters -------------------------------------------------------------------------------

std::vector<std::string> ParameterFiles() {
  const std::string path = testing::TempDir() + "/corpus.parameters";
  std::vector<std::string> files;
  SaveParameters(NewNetwork(1), path);
  files.push_back(FileOf(path));
  SaveParameters(NewNetwork(2), path, {{"note", "mine"}});
  files.push_back(FileOf(path));
  SaveParameters(Network({6}, {Dense(8), Dense(3)}, 3), path);
  files.push_back(FileOf(path));
  SaveParameters(NewNetwork(4), path, {}, {{"more", Full({2}, 1)}});
  files.push_back(FileOf(path));
  // As many bytes in another shape.
  files.push_back(Replaced(files[0], "[8,6]", "[6,8]"));
  return files;
}

void ReadParameterFile(const std::string& bytes) {
  static Network& network = *new Network(NewNetwork(9));
  const std::string path = FuzzFile(bytes), before = BytesOf(network.arrays());
  try {
    LoadParameters(path, network);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    EXPECT_EQ(BytesOf(network.arrays()), before) << "refused, and yet written to";
    throw;
  }
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  ASSERT_EQ(reader.tensors().size(), network.named_parameters().size());
  for (const NamedParameter& parameter : network.named_parameters())
    ExpectHolds(reader, parameter.name, parameter.value);
}

TIDEPOOL_FUZZ_TARGET(Parameters, {.corpus = &ParameterFiles,
                                  .mutate = &MutateHeader,
                                  .run = &ReadParameterFile,
                                  .cases = 10000});

// ---- checkpoints ------------------------------------------------------------------------------

UpdaterConfig Config() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

std::vector<std::string> Checkpoints() {
  const std::string path = testing::TempDir() + "/corpus.checkpoint";
  std::vector<std::string> files;
  for (const int64_t steps : {int64_t{0}, int64_t{120}}) {
    const Network network = NewNetwork(static_cast<uint64_t>(steps));
    Updater updater(Config(), network.parameters().shape());
    updater.set_steps(steps);
    SaveCheckpoint(network, updater, path, {{"batch", "12"}, {"note", "x"}});
    files.push_back(FileOf(path));
  }
  files.push_back(Replaced(files[1], R"("steps":"120")", R"("steps":"-12")"));
  return files;
}

void ReadCheckpoint(const std::string& bytes) {
  static Network& network = *new Network(NewNetwork(9));
  static Updater& updater = *new Updater(Config(), network.parameters().shape());
  const std::string path = FuzzFile(bytes);
  const auto all = [] {
    std::string text = BytesOf(network.arrays());
    for (const NDArray* state : updater.state()) text += BytesOf(*state);
    return text + std::to_string(updater.steps()) + " " + std::to_string(updater.epoch()) + " " +
           std::to_string(network.step());
  };
  const std::string before = all();
  CheckpointNotes notes;
  try {
    notes = LoadCheckpoint(path, network, updater);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    EXPECT_EQ(all(), before) << "refused, and yet written to";
    throw;
  }
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  for (const NamedParameter& parameter : network.named_parameters())
    ExpectHolds(reader, parameter.name, parameter.value);
  for (size_t i = 0; i < updater.state().size(); ++i)
    ExpectHolds(reader, "updater/" + std::to_string(i), *updater.state()[i]);
  ASSERT_EQ(reader.tensors().size(), network.named_parameters().size() + updater.state().size());
  const auto number = [&](const char* name) { return std::stoll(reader.metadata().at(name)); };
  EXPECT_EQ(updater.steps(), number("steps"));
  EXPECT_EQ(updater.epoch(), number("epoch"));
  EXPECT_EQ(static_cast<int64_t>(network.step()), number("random_step"));
  EXPECT_GE(updater.steps(), 0);
  // Older ones do not say what is frozen, by what type layers compute, nor all digits of the updater's numbers.
  size_t fields = notes.size() + 6;
  for (const char* const later : {"frozen", "random_seed", "compute_type", "exact_updater"})
    fields += reader.metadata().count(later);
  EXPECT_EQ(fields, reader.metadata().size());
  for (const auto& [name, value] : notes) EXPECT_EQ(reader.metadata().at(name), value);
}

TIDEPOOL_FUZZ_TARGET(Checkpoint, {.corpus = &Checkpoints,
                                  .mutate = &MutateHeader,
                                  .run = &ReadCheckpoint,
                                  .cases = 10000});

}  // namespace
}  // namespace tidepool::nn
