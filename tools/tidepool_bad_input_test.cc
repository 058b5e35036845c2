// What the tidepool binary says to bad input: one line, exit status 2, nothing left behind.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Binary() { return DataPath("tools/tidepool"); }
std::string Mnist() { return DataPath("examples/data/mnist"); }

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

// Run in `folder`, which must hold the same files afterwards.
void ExpectRefused(const std::string& folder, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& parts) {
  SCOPED_TRACE(testing::PrintToString(arguments));
  const std::vector<std::string> before = FilesIn(folder);
  const RunResult result = RunProgram(Binary(), arguments, {.folder = folder});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, testing::StartsWith("tidepool " + arguments[0] + ": "));
  EXPECT_THAT(result.err, testing::EndsWith("\n"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_EQ(FilesIn(folder), before);
}

// A folder of small images as MNIST has them: 40 to train and 20 to test, of 10x12 pixels.
std::string SmallImages() {
  const std::string folder = NewFolder();
  std::map<std::string, uint32_t> parts = {{"train", 40}, {"t10k", 20}};
  for (const auto& [part, count] : parts) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      labels += static_cast<char>(i % 10);
      for (int p = 0; p < 120; ++p) pixels += static_cast<char>((i * 37 + p * p * 11) % 251);
    }
    Write(folder + "/" + part + "-images-idx3-ubyte.gz", Gzip(Idx({count, 10, 12}, pixels)));
    Write(folder + "/" + part + "-labels-idx1-ubyte", Idx({count}, labels));
  }
  return folder;
}

const char kImages[] = "train-images-idx3-ubyte.gz";
const char kLabels[] = "train-labels-idx1-ubyte";

std::vector<std::string> Train(std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"train", "--data=.", "--model=mlp", "--epochs=1", "--threads=1", "--save=model"});
  return more;
}

// A model for those images in the folder, and what `change` makes of its metadata.
void SaveMlp(const std::string& folder, const std::string& name, const std::string& field = "",
             const std::string& value = "") {
  const RunResult trained = RunProgram(
      Binary(), {"train", "--data=.", "--model=mlp", "--epochs=1", "--threads=1", "--save=" + name},
      {.folder = folder});
  ASSERT_EQ(trained.status, 0) << trained.err;
  if (field.empty()) return;
  const std::string path = folder + "/" + name;
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  std::map<std::string, std::string> metadata = reader.metadata();
  metadata[field] = value;
  std::vector<SafetensorView> tensors;
  for (const SafetensorInfo& info : reader.tensors()) {
    tensors.push_back({info.name, info.dtype, info.shape, reader.data(info)});
  }
  WriteSafetensors(path, metadata, tensors);
}

std::vector<std::string> Evaluate(const std::string& model) {
  return {"evaluate", "--model_file=" + model, "--images=t10k-images-idx3-ubyte.gz",
          "--labels=t10k-labels-idx1-ubyte"};
}

TEST(BadInput, TheSmallImagesAreGood) {
  const std::string folder = SmallImages();
  const std::vector<std::string> report = {"memory_report", "--model=mlp"};
  ExpectRefused(folder, report, {"flag --input is not set"});
  for (const auto& [flag, message] : std::vector<std::pair<std::string, std::string>>{
           {"--input=28,x", "flag --input is \"28,x\", expected the shape of an example"},
           {"--budget=64MB", "flag --budget is \"64MB\", expected bytes"}}) {
    std::vector<std::string> wrong = report;
    wrong.push_back(flag);
    ExpectRefused(folder, wrong, {message});
  }
  SaveMlp(folder, "model");
  const RunResult result = RunProgram(Binary(), Evaluate("model"), {.folder = folder});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("examples 20  classes 10"));
}

TEST(BadInput, Flags) {
  const std::string folder = SmallImages();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--batch=0", "flag --batch is 0, expected at least 1"},
      {"--batch=-5", "flag --batch is -5, expected at least 1"},
      {"--batch=9999999999", "flag --batch is \"9999999999\", expected a whole number"},
      {"--epochs=-1", "flag --epochs is -1, expected at least 1"},
      {"--epochs=0", "flag --epochs is 0, expected at least 1"},
      {"--threads=-1", "flag --threads: thread count is -1, expected 1 to 1024"},
      {"--threads=100000", "flag --threads: thread count is 100000, expected 1 to 1024"},
      {"--schedule=linear", "flag --schedule is \"linear\", expected cosine or constant"},
      {"--learning_rate=nan", "flag --learning_rate is nan, expected a finite number"},
      {"--learning_rate=inf", "flag --learning_rate is inf, expected a finite number"},
      {"--learning_rate=-0.1", "flag --learning_rate is -0.1, expected a finite number"},
      {"--updater=foo",
       "updater is \"foo\", expected sgd, nesterovs, adagrad, rmsprop, adam or adamw"},
      {"--model=foo", "model is \"foo\", expected lenet, mlp or residual"},
      {"--model=lenet", "conv2d"},  // the images are too small for it
      {"--model=a\nb", "model is \"a\\x0ab\""},
      {"--seed=-1", "flag --seed is \"-1\", expected a whole number from 0"},
      {"--graphs", "flag --graphs: trainer: graphs: steps on host cannot be captured"},
      {"--workspace_mode=foo", "flag --workspace_mode is \"foo\", expected enabled, single, "},
      {"--data=", "flag --data is not set"},
      {"--foo=1", "unknown flag --foo"}};
  for (const auto& [flag, message] : cases) ExpectRefused(folder, Train({flag}), {message});
  ExpectRefused(folder, {"evaluate", "--batch=0"}, {"flag --batch is 0"});
  ExpectRefused(folder, {"predict", "--model_file=model"}, {"flag --images is not set"});
  ExpectRefused(folder, {"evaluate", "--images=x"}, {"flag --labels is not set"});
}

TEST(BadInput, PlacementProblems) {
  const std::string folder = SmallImages();
  const std::string bad = WriteTestFile("bad.csv", "id,lower,upper,size\na,3,1,4\n");
  ExpectRefused(folder, {"plan"}, {"flag --input is not set"});
  ExpectRefused(folder, {"plan", "--input=nowhere.csv"}, {"nowhere.csv", "No such file"});
  ExpectRefused(folder, {"plan", "--input", bad}, {"bad.csv:2"});
  for (const auto& [flag, message] : std::map<std::string, std::string>{
           {"--alignment=0", "--alignment is 0, expected at least 1\n"},
           {"--capacity=-1", "--capacity is -1, expected at least 0\n"},
           {"--time_limit=-2s", "--time_limit is -2s, expected at least 0\n"}})
    ExpectRefused(folder, {"plan", "--input", bad, flag}, {": flag " + message});
  // Before the problem is looked at.
  ExpectRefused(folder, {"plan", "--input", bad, "--output=none/x"},
                {"flag --output: write none/x", "No such file"});
}

TEST(BadInput, Images) {
  const std::string folder = SmallImages();
  const std::string images = folder + "/" + kImages, good = ReadWhole(images);
  ExpectRefused(folder, Train({"--data=none"}), {"image folder none", "no such folder"});
  ExpectRefused(folder, Train({"--data=a\nb"}), {"image folder a\\nb"});

  std::filesystem::remove(images);
  ExpectRefused(folder, Train(), {kImages, "a folder without these files"});
  std::filesystem::create_directory(images);
  ExpectRefused(folder, Train(), {kImages, "Is a directory"});
  std::filesystem::remove(images);
  Write(images, good.substr(0, good.size() / 2));
  ExpectRefused(folder, Train(), {kImages, ": byte ", "found the end of the file, expected"});
  std::string flipped = good;
  flipped[good.size() / 2] ^= 0x10;
  Write(images, flipped);
  ExpectRefused(folder, Train(), {kImages, ": byte ", "gzip", "found ", "expected "});
  Write(images, "not an image");
  ExpectRefused(folder, Train(), {kImages, "byte 0", "found 0x6e 0x6f, expected 0x00 0x00"});
  Write(images, Gzip(Idx({40}, std::string(40, 'x'))));
  ExpectRefused(folder, Train(), {kImages, "byte 3", "rank: found 1, expected 3"});
  Write(images, Gzip(Idx({4000000000u, 28, 28}, "few")));
  ExpectRefused(
      folder, Train(),
      {kImages, "byte 4", "[4000000000,28,28], which are 3136000000000 bytes, expected at most"});
  Write(images, Idx({40, 10, 11}, std::string(4400, 'x')));
  ExpectRefused(folder, Train(), {"t10k-images", "10x12, expected 10x11"});
  Write(images, Idx({0, 10, 12}, ""));
  ExpectRefused(folder, Train(), {kImages, "found 0 images", "expected at least one"});
  Write(images, good);

  const std::string labels = folder + "/" + kLabels;
  Write(labels, Idx({39}, std::string(39, '\0')));
  ExpectRefused(folder, Train(), {kLabels, "byte 4", "found 39 labels, expected 40"});
  std::string wrong(40, '\3');
  wrong[17] = 10;
  Write(labels, Idx({40}, wrong));
  ExpectRefused(folder, Train(), {kLabels, "byte 25: label 17: found 10, expected 0..9"});
}

TEST(BadInput, SavePaths) {
  const std::string folder = SmallImages();
  ExpectRefused(folder, Train({"--save=none/model"}), {"none/model", "No such file or directory"});
  ExpectRefused(folder, Train({"--save=."}), {"write .: Is a directory"});
  ExpectRefused(folder, Train({"--save=new/"}), {"write new/: Is a directory"});
  ExpectRefused(folder, Train({"--save=" + std::string(5000, 'x')}), {"File name too long"});
  for (const char* device : {"/dev/full", "/dev/null"}) {
    ExpectRefused(folder, Train({std::string("--save=") + device}),
                  {device, "found a device or pipe, expected a regular file or none"});
    struct stat status;
    ASSERT_EQ(stat(device, &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode)) << device;
  }
}

// Known before the first step, not after the last one.
TEST(BadInput, FullDisk) {
  const std::string folder = SmallImages();
  Write(folder + "/model", "the model of yesterday");
  const std::vector<std::string> before = FilesIn(folder);
  const RunResult result =
      RunProgram(Binary(), Train(), {.folder = folder, .max_file_bytes = 100000});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err,
              testing::MatchesRegex(
                  "tidepool train: write model: reserve 2[0-9]* bytes: File too large\n"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("epoch 1/1")));
  EXPECT_EQ(FilesIn(folder), before);
  EXPECT_EQ(ReadWhole(folder + "/model"), "the model of yesterday");
}

TEST(BadInput, OutputsAreCheckedAtTheStart) {
  const std::string folder = SmallImages();
  const std::string long_name(256, 'x');
  ExpectRefused(folder, Train({"--save=" + long_name}),
                {"flag --save: write xxx", "File name too long"});
  for (const std::string flag : {"memory_log", "trace_file"}) {
    ExpectRefused(folder, Train({"--" + flag + "=none/file"}),
                  {"flag --" + flag + ": write none/file", "No such file"});
    ExpectRefused(folder, Train({"--" + flag + "=" + long_name}),
                  {"flag --" + flag + ": write xxx", "File name too long"});
    ExpectRefused(folder, Train({"--" + flag + "=./model"}),
                  {"flags --save and --" + flag + " are both ./model, expected different files"});
  }
  std::filesystem::create_directory(folder + "/a");
  std::filesystem::create_directory_symlink("a", folder + "/b");
  ExpectRefused(folder, Train({"--memory_log=a/x", "--trace_file=" + folder + "/b/../b/x"}),
                {"flags --memory_log and --trace_file are both"});
  ExpectRefused(folder, Train({"--trace_file=trace", "--workspace_mode=none"}),
                {"flag --trace_file: no step was learned"});
  const RunResult all =
      RunProgram(Binary(), Train({"--batch=10", "--memory_log=log", "--trace_file=trace"}),
                 {.folder = folder});
  EXPECT_EQ(all.status, 0) << all.err;
  for (const char* file : {"model", "log", "trace"})
    EXPECT_GT(ReadWhole(folder + "/" + file).size(), 9u);
}

TEST(BadInput, TrainingThatDivergesEndsAtThatStep) {
  const std::string folder = SmallImages();
  Write(folder + "/model", "the model of yesterday");
  const auto ends = [&](const std::vector<std::string>& flags, const std::string& message) {
    std::vector<std::string> all = Train({"--epochs=9", "--updater=sgd", "--schedule=constant"});
    all.insert(all.end(), flags.begin(), flags.end());
    const RunResult result = RunProgram(Binary(), all, {.folder = folder});
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_THAT(result.err, testing::StartsWith("tidepool train: " + message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(ReadWhole(folder + "/model"), "the model of yesterday");
    return result;
  };
  const std::vector<std::string> before = FilesIn(folder);
  const RunResult first =
      ends({"--learning_rate=1e30", "--batch=10"}, "step 2 (epoch 1): the loss is ");  // nan or inf
  EXPECT_THAT(first.err, testing::EndsWith(": training has diverged; a lower --learning_rate may "
                                           "help; nothing is saved, as no epoch has been finished "
                                           "before\n"));
  // The last update of an epoch, which no loss has seen.
  ends({"--learning_rate=1e60", "--batch=40"},
       "step 1 (epoch 1): parameter \"0.dense.weight\" holds ");
  ends({"--learning_rate=1e30", "--batch=40"},
       "step 1 (epoch 1): the network's outputs are not finite: training has diverged");
  EXPECT_EQ(FilesIn(folder), before);
  // It takes some epochs of one step; the last one before is kept.
  const RunResult later = ends({"--learning_rate=1e7", "--batch=40"}, "step ");
  EXPECT_THAT(later.out, testing::Not(HasSubstr("nan")));
  int step = 0, epoch = 0, kept = 0;
  ASSERT_EQ(std::sscanf(later.err.c_str(), "tidepool train: step %d (epoch %d)", &step, &epoch), 2);
  EXPECT_EQ(step, epoch);
  ASSERT_GE(epoch, 2) << later.err;
  const size_t at = later.err.find("; the model as it was after epoch ");
  ASSERT_NE(at, std::string::npos) << later.err;
  ASSERT_EQ(std::sscanf(later.err.c_str() + at, "; the model as it was after epoch %d", &kept), 1);
  EXPECT_EQ(kept, epoch - 1);
  const std::string file = "model.epoch-" + std::to_string(kept);
  EXPECT_THAT(later.err, testing::EndsWith(" is in " + file + "\n"));
  const RunResult until_then =
      RunProgram(Binary(),
                 Train({"--updater=sgd", "--schedule=constant", "--learning_rate=1e7", "--batch=40",
                        "--epochs=" + std::to_string(kept), "--save=until"}),
                 {.folder = folder});
  EXPECT_EQ(until_then.status, 0) << until_then.err;
  EXPECT_TRUE(ReadWhole(folder + "/until") == ReadWhole(folder + "/" + file));
}

TEST(BadInput, ModelsThatAreNoNumbers) {
  const std::string folder = SmallImages();
  SaveMlp(folder, "good");
  const auto fill = [&](const std::string& name, size_t element, float value) {
    const SafetensorsReader reader = SafetensorsReader::Open(folder + "/good");
    std::vector<SafetensorView> tensors;
    std::vector<std::vector<float>> values;
    for (const SafetensorInfo& info : reader.tensors()) {
      const auto data = reader.data(info);
      std::vector<float>& copy = values.emplace_back(data.size() / sizeof(float));
      std::memcpy(copy.data(), data.data(), data.size());
      if (element < copy.size()) {
        copy[element] = value;
      } else {
        std::fill(copy.begin(), copy.end(), value);
      }
      tensors.push_back(
          {info.name, info.dtype, info.shape,
           absl::MakeConstSpan(reinterpret_cast<const std::byte*>(copy.data()), data.size())});
    }
    WriteSafetensors(folder + "/" + name, reader.metadata(), tensors);
  };
  fill("nan", 3, std::nanf(""));
  const std::vector<std::string> predict = {"predict", "--images=t10k-images-idx3-ubyte.gz",
                                            "--model_file"};
  for (std::vector<std::string> command : {predict, Evaluate("nan")}) {
    if (command == predict) command.push_back("nan");
    ExpectRefused(folder, command,
                  {"nan: parameter \"", "holds nan at [", "expected finite numbers"});
  }
  // Numbers that are too large to compute with.
  fill("huge", SIZE_MAX, 3e38f);
  std::vector<std::string> command = predict;
  command.push_back("huge");
  const RunResult result = RunProgram(Binary(), command, {.folder = folder});
  EXPECT_EQ(result.status, 1) << result.out;
  EXPECT_EQ(result.err, "tidepool predict: image 0: its probabilities are not finite\n");
}

TEST(BadInput, Models) {
  const std::string folder = SmallImages();
  auto refuse = [&](const std::string& field, const std::string& value,
                    const std::vector<std::string>& parts) {
    SaveMlp(folder, "bad", field, value);
    ExpectRefused(folder, Evaluate("bad"), parts);
    ExpectRefused(folder, {"predict", "--model_file=bad", "--images=t10k-images-idx3-ubyte.gz"},
                  parts);
  };
  const auto layers = [](const std::string& shape, const std::string& units) {
    return R"({"inputs":[{"name":"x","shape":)" + shape +
           R"(}],"layers":[{"kind":"dense","units":)" + units + "}]}";
  };
  refuse("format", "pt", {"bad: metadata \"format\" is \"pt\", expected \"tidepool\""});
  refuse("architecture", "x\ny", {"bad: metadata \"architecture\" is \"x\\ny\", expected \"input"});
  refuse("classes", "0", {"bad: metadata \"classes\" holds \"0\", expected a number from 1"});
  refuse("classes", "1048576", {"bad: metadata \"classes\" is 1048576, expected that of"});
  refuse("network", "x",
         {"bad: metadata \"network\" holds \"x\", expected a network that can be made: network "
          "JSON: "});
  refuse("network", layers("[10,12,1]", "[]"),
         {"layers[0].units: found [], expected a whole number"});
  refuse("network", layers("[120]", "10"),
         {"bad: metadata \"architecture\" is \"input [10, 12, 1];", "expected \"input [120];"});

  SaveMlp(folder, "good");
  const std::string bytes = ReadWhole(folder + "/good");
  Write(folder + "/cut", bytes.substr(0, bytes.size() - 1));
  ExpectRefused(folder, Evaluate("cut"), {"cut: ", "found ", "expected "});
  Write(folder + "/text", "this is not a model, it is a letter");
  ExpectRefused(folder, Evaluate("text"), {"text: byte 0: header length: found ", "expected "});
  Write(folder + "/empty", "");
  ExpectRefused(folder, Evaluate("empty"), {"empty: byte 0", "expected at least 8"});
  ExpectRefused(folder, Evaluate("none"), {"open none: No such file or directory"});
  ExpectRefused(folder, Evaluate("."), {"open .: Is a directory"});
  ExpectRefused(folder, Evaluate("/dev/zero"), {"/dev/zero: found a pipe or device"});
}

TEST(BadInput, ImagesOfAnotherSize) {
  const std::string folder = SmallImages();
  SaveMlp(folder, "model");
  const std::string images = Mnist() + "/t10k-images-idx3-ubyte.gz";
  const std::vector<std::string> parts = {images +
                                          ": images are [28, 28, 1], expected [10, 12, 1]"};
  ExpectRefused(folder, {"predict", "--model_file=model", "--images=" + images}, parts);
  ExpectRefused(folder,
                {"evaluate", "--model_file=model", "--images=" + images,
                 "--labels=" + Mnist() + "/t10k-labels-idx1-ubyte.gz"},
                parts);
}

}  // namespace
}  // namespace tidepool::tools
