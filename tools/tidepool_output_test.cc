// What the tidepool binary does where its output cannot go, or would go over its input.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string Binary() { return DataPath("tools/tidepool"); }
std::string Mnist() { return DataPath("examples/data/mnist"); }

TEST(Output, HelpThatCannotBeWrittenIsAnError) {
  for (const auto& [arguments, name] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"train", "--help"}, " train"},
           {{"plan", "-h"}, " plan"},
           {{"help", "evaluate"}, " evaluate"},
           {{"help"}, ""},
           {{"--help"}, ""}}) {
    const RunResult result = RunProgram(Binary(), arguments, {.stdout_path = "/dev/full"});
    EXPECT_EQ(result.status, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(result.err, "tidepool" + name + ": write standard output: No space left on device\n");
    EXPECT_EQ(RunProgram(Binary(), arguments).status, 0);
  }
}

TEST(Output, OfCommandsThatCannotBeWrittenIsAnError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"kernels"},
        std::vector<std::string>{"train", "--data=" + Mnist(), "--model=mlp", "--epochs=1"}}) {
    const RunResult result = RunProgram(Binary(), arguments, {.stdout_path = "/dev/full"});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err,
              "tidepool " + arguments[0] + ": write standard output: No space left on device\n");
  }
}

// As head -1 does it; the model is worth more than the progress that nobody reads.
TEST(Output, AReaderThatGoesDoesNotEndATraining) {
  const std::string folder = NewFolder();
  // A pipe that has had a reader.
  const std::string script = "mkfifo p && exec 3<>p && exec 4>p && exec 3<&- && exec '" + Binary() +
                             "' train '--data=" + Mnist() +
                             "' --model=mlp --epochs=1 --save=model >&4";
  const RunResult result = RunProgram("/bin/sh", {"-c", script}, {.folder = folder});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "tidepool train: write standard output: Broken pipe\n");
  EXPECT_THAT(FilesIn(folder), Contains("model"));
}

TEST(Output, ThatIsAnInputIsRefusedBeforeAnythingIsRead) {
  const std::string folder = NewFolder();
  for (const auto& entry : std::filesystem::directory_iterator(Mnist())) {
    const std::string name = entry.path().filename().string();
    if (name.find("ubyte") == std::string::npos) continue;
    std::filesystem::copy_file(std::filesystem::canonical(entry.path()), folder + "/" + name);
  }
  std::ofstream(folder + "/problem.csv") << "id,lower,upper,size\nb1,0,3,4\n";
  std::filesystem::create_directory_symlink(folder, folder + "/same");
  std::filesystem::create_symlink("problem.csv", folder + "/link.csv");
  const std::vector<std::string> before = FilesIn(folder);
  const std::vector<std::string> train = {"train", "--data=.", "--model=mlp", "--epochs=1"};
  const std::string images = "train-images-idx3-ubyte.gz";
  for (const auto& [flag, path] : std::vector<std::pair<std::string, std::string>>{
           {"save", images},
           {"save", folder + "/t10k-labels-idx1-ubyte.gz"},
           {"memory_log", "./" + images},
           {"trace_file", "same/" + images}}) {
    std::vector<std::string> arguments = train;
    arguments.push_back("--" + flag + "=" + path);
    const RunResult result = RunProgram(Binary(), arguments, {.folder = folder});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err, "tidepool train: flag --" + flag + " is " + path +
                              ", which is read by --data, expected another file\n");
    EXPECT_EQ(result.out, "");
  }
  for (const char* path : {"problem.csv", "same/problem.csv", "link.csv"}) {
    const RunResult result =
        RunProgram(Binary(), {"plan", "--input=problem.csv", std::string("--output=") + path},
                   {.folder = folder});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(", which is read by --input, expected another file"));
  }
  EXPECT_EQ(FilesIn(folder), before);
  EXPECT_EQ(ReadWhole(folder + "/problem.csv"), "id,lower,upper,size\nb1,0,3,4\n");
}

}  // namespace
}  // namespace tidepool::tools
