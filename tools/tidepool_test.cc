// The tidepool binary from start to end, run as a user runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kCountersAreOurs = false;  // AddressSanitizer maps memory and touches pages itself
#else
constexpr bool kCountersAreOurs = true;
#endif

RunResult Tidepool(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  return RunProgram(DataPath("tools/tidepool"), arguments, options);
}

std::string Mnist(const std::string& file = "") { return DataPath("examples/data/mnist") + file; }

// One epoch of the MLP: a fraction of a second. One thread unless said otherwise: threads that wait
// for each other are slow on a machine whose processors have other work.
std::vector<std::string> Train(std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"train", "--data", Mnist(), "--model=mlp", "--epochs=1", "--threads=1"});
  return more;
}

RunResult ExpectOk(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  const RunResult result = Tidepool(arguments, options);
  EXPECT_EQ(result.status, 0) << testing::PrintToString(arguments) << result.err;
  EXPECT_EQ(result.err, "");
  return result;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The line that starts with `start`, blanks aside.
std::string LineOf(const std::string& text, const std::string& start) {
  for (const std::string& line : Lines(text)) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, start.size(), start) == 0) return line;
  }
  ADD_FAILURE() << "no line starts with \"" << start << "\" in:\n" << text;
  return "";
}

// From "examples" to the end of the confusion matrix.
std::string EvaluationOf(const std::string& text) {
  const size_t begin = text.find("examples 1000  classes 10\n");
  const size_t matrix = text.find("predicted\n", begin);
  EXPECT_NE(begin, std::string::npos) << text;
  EXPECT_NE(matrix, std::string::npos) << text;
  return text.substr(begin, text.find("\n\n", matrix) - begin);
}

TEST(Tidepool, TrainLogsMemoryAfterEachStep) {
  const std::string path = NewFolder() + "/memory.csv";
  const RunResult result = ExpectOk(Train({"--memory_log=" + path}));
  EXPECT_THAT(result.out, HasSubstr("wrote memory after each step to " + path));
  const std::vector<std::string> lines = Lines(ReadWhole(path));
  ASSERT_GT(lines.size(), 3u);
  EXPECT_THAT(lines[0],
              testing::StartsWith("label,seconds,resident_bytes,device,owner,allocated,"));
  EXPECT_THAT(lines[1], testing::StartsWith("epoch 1 batch 0,"));
  EXPECT_THAT(lines.back(), HasSubstr(",host,,"));
  EXPECT_EQ(Tidepool(Train({"--memory_log=/nowhere/memory.csv"})).status, 2);
}

TEST(Tidepool, TrainShowsItsMemoryAsAPage) {
  const std::string path = NewFolder() + "/memory.html";
  const RunResult result = ExpectOk(Train({"--memory_profile=" + path}));
  EXPECT_THAT(result.out, HasSubstr("wrote the memory's profile to " + path));
  const std::string page = ReadWhole(path);
  EXPECT_LE(page.size(), 5000000u);
  // Operators and shapes, owners, workspaces and functions of call stacks.
  for (const char* const part :
       {"tidepool train --model=mlp", "matmul: f32 [", "workspace mlp training",
        "process #data set", "tidepool::nn::Dense::Forward"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_EQ(Tidepool(Train({"--memory_profile=/nowhere/memory.html"})).status, 2);
}

TEST(Tidepool, AnyProgramShowsItsMemoryByTheEnvironment) {
  const std::string path = NewFolder() + "/memory.html";
  setenv("TIDEPOOL_MEMORY_PROFILE", path.c_str(), 1);
  ExpectOk({"memory_report", "--model=mlp", "--input=28,28,1"});
  unsetenv("TIDEPOOL_MEMORY_PROFILE");
  EXPECT_THAT(ReadWhole(path), HasSubstr("workspace mlp"));
}

TEST(Tidepool, ViewShowsASnapshotOfPyTorch) {
  const std::string snapshot = DataPath("memory/profile/testdata/snapshot.pickle"),
                    folder = NewFolder();
  const RunResult result =
      ExpectOk({"view", "--snapshot=" + snapshot, "--page=" + folder + "/x.html",
                "--trace=" + folder + "/x.json"});
  EXPECT_THAT(result.out, HasSubstr("wrote " + folder + "/x.html\nwrote " + folder + "/x.json\n"));
  EXPECT_THAT(ReadWhole(folder + "/x.html"), HasSubstr("forward_block3"));
  EXPECT_THAT(ReadWhole(folder + "/x.json"), HasSubstr("device memory of cuda:0"));
  EXPECT_EQ(Tidepool({"view", "--snapshot=" + snapshot}).status, 2);
  const RunResult refused = Tidepool({"view", "--snapshot=" + Mnist("/train-images-idx3-ubyte.gz"),
                                      "--page=" + folder + "/y.html"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("byte 0 of the pickle"));
  EXPECT_THAT(FilesIn(folder), ElementsAre("x.html", "x.json"));
}

TEST(Tidepool, DevicesThatAreNotThereAreNamed) {
  const auto error_of = [](const std::string& device) {
    const RunResult result = Tidepool(Train({"--device=" + device}));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(
      error_of("gpu"),
      HasSubstr("flag --device: found device \"gpu\", expected one of the types host, cuda"));
  EXPECT_THAT(error_of("cuda:x"), HasSubstr("flag --device: found device \"cuda:x\""));
  EXPECT_THAT(error_of("cuda:99"), HasSubstr("flag --device: found device \"cuda:99\""));
  EXPECT_THAT(error_of("host:1"), HasSubstr("flag --device: found device \"host:1\""));
  EXPECT_THAT(error_of("simulated:0"), HasSubstr("expected one of the types host, cuda"));
  EXPECT_THAT(error_of("cuda:15"), HasSubstr("flag --device: "));
}

TEST(Tidepool, TrainPrintsAccuracyAndMemory) {
  const std::string out = ExpectOk(Train()).out;
  EXPECT_THAT(out, Not(HasSubstr("\r")));
  EXPECT_THAT(out, testing::EndsWith("\n"));
  EXPECT_THAT(out, HasSubstr("mlp: input [28, 28, 1]; dense 256 relu; dense 128 relu; dense 10; "
                             "235146 parameters\n"));
  EXPECT_THAT(out, HasSubstr("8000 training and 1000 test images"));
  EXPECT_THAT(out, HasSubstr("epoch 1/1    8000/8000 examples  "));
  const std::string accuracy = LineOf(out, "test accuracy ");
  EXPECT_GT(std::atof(accuracy.substr(14).c_str()), 0.85) << accuracy;
  EXPECT_THAT(EvaluationOf(out), HasSubstr("\nlabel "));
  EXPECT_THAT(LineOf(out, "host       gradient standard"), HasSubstr("940608"));
  LineOf(out, "host       total");
  // 125 steps, and as many cycles of the training workspace.
  EXPECT_THAT(LineOf(out, "mlp training "), HasSubstr("   125   "));
  LineOf(out, "mlp inference ");
  EXPECT_THAT(out, HasSubstr("per step after the first two (123 steps)\n"));
}

TEST(Tidepool, StepsAskNothingOfTheSystem) {
  if (!kCountersAreOurs) GTEST_SKIP() << "AddressSanitizer allocates in every step";
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--threads=2"}, {"--workspace_mode=single"}}) {
    const std::string out = ExpectOk(Train(flags)).out;
    EXPECT_THAT(LineOf(out, "tensor allocations from the system"),
                HasSubstr(" 0.0000  (0 in all)"));
    EXPECT_THAT(LineOf(out, "page faults"), HasSubstr(" 0.0000  (0 in all)"));
    EXPECT_THAT(LineOf(out, "system calls for memory"),
                testing::AnyOf(HasSubstr(" 0.0000  (0 in all)"), HasSubstr(" not counted: ")));
  }
}

TEST(Tidepool, EvaluateSeesWhatTrainingSaw) {
  const std::string folder = NewFolder(), model = folder + "/m.safetensors";
  const std::string trained = ExpectOk(Train({"--save", model})).out;
  EXPECT_THAT(trained, HasSubstr("saved " + model + "\n"));
  EXPECT_THAT(FilesIn(folder), ElementsAre("m.safetensors"));
  const std::string evaluated =
      ExpectOk({"evaluate", "--model_file", model, "--images", Mnist("/t10k-images-idx3-ubyte.gz"),
                "--labels", Mnist("/t10k-labels-idx1-ubyte.gz")})
          .out;
  EXPECT_EQ("test " + LineOf(evaluated, "accuracy 0."), LineOf(trained, "test accuracy 0."));
  EXPECT_EQ(EvaluationOf(evaluated), EvaluationOf(trained));
  EXPECT_THAT(
      evaluated,
      HasSubstr("\n\ncalibration\nexamples 1000  classes 10\nexpected calibration error  0.0"));
  EXPECT_GT(std::atof(LineOf(evaluated, "macro AUC     ").substr(14).c_str()), 0.98) << evaluated;
}

TEST(Tidepool, EvaluateDrawsCurves) {
  const std::string folder = NewFolder(), model = folder + "/m.safetensors";
  ExpectOk(Train({"--save", model}));
  std::filesystem::create_directory(folder + "/curves");
  std::vector<std::string> arguments = {"evaluate",
                                        "--model_file",
                                        model,
                                        "--images",
                                        Mnist("/t10k-images-idx3-ubyte.gz"),
                                        "--labels",
                                        Mnist("/t10k-labels-idx1-ubyte.gz"),
                                        "--curves=" + folder + "/curves"};
  const RunResult drawn = Tidepool(arguments);
  if (drawn.status != 0) {
    EXPECT_THAT(drawn.err, HasSubstr("flag --curves: picture: built without cairo"));
    GTEST_SKIP() << drawn.err;
  }
  EXPECT_THAT(drawn.out, HasSubstr("wrote " + folder + "/curves/roc.svg, "));
  arguments.push_back("--curves_as=png");
  EXPECT_EQ(Tidepool(arguments).status, 0);  // fontconfig may complain of caches in a sandbox
  EXPECT_THAT(
      FilesIn(folder + "/curves"),
      testing::UnorderedElementsAre("roc.svg", "roc.png", "precision_recall.svg",
                                    "precision_recall.png", "calibration.svg", "calibration.png"));
  EXPECT_EQ(ReadWhole(folder + "/curves/roc.png").substr(1, 3), "PNG");
  arguments.back() = "--curves_as=pdf";
  EXPECT_THAT(Tidepool(arguments).err,
              HasSubstr("flag --curves_as is \"pdf\", expected svg or png"));
  arguments.back() = "--curves=" + folder + "/nowhere";
  EXPECT_THAT(Tidepool(arguments).err, HasSubstr("flag --curves: "));
}

TEST(Tidepool, PredictPrintsALinePerImage) {
  const std::string model = NewFolder() + "/m.safetensors";
  const std::string trained = ExpectOk(Train({"--save", model})).out;
  const std::string out = ExpectOk({"predict", "--model_file", model, "--images",
                                    Mnist("/t10k-images-idx3-ubyte.gz"), "--batch=999"})
                              .out;
  const std::vector<std::string> lines = Lines(out);
  ASSERT_EQ(lines.size(), 1001u);
  EXPECT_EQ(lines[0], "image,class,probability");
  // As many of each class as the columns of the confusion matrix say, most of them right.
  const RunResult labels = RunProgram("/bin/gzip", {"-dc", Mnist("/t10k-labels-idx1-ubyte.gz")});
  ASSERT_EQ(labels.out.size(), 1008u) << labels.err;
  int right = 0;
  for (int i = 0; i < 1000; ++i) {
    long long image = -1, label = -1;
    double probability = -1;
    int length = 0;
    ASSERT_EQ(
        std::sscanf(lines[i + 1].c_str(), "%lld,%lld,%lf%n", &image, &label, &probability, &length),
        3);
    EXPECT_EQ(length, lines[i + 1].size());
    EXPECT_EQ(image, i);
    EXPECT_GE(probability, 0.1);
    EXPECT_LE(probability, 1.0);
    right += label == labels.out[8 + i];
  }
  EXPECT_DOUBLE_EQ(right / 1000.0, std::atof(LineOf(trained, "test accuracy").substr(14).c_str()));

  const std::string none = WriteTestFile("none", Idx({0, 28, 28}, ""));
  EXPECT_EQ(ExpectOk({"predict", "--model_file", model, "--images", none}).out,
            "image,class,probability\n");
}

TEST(Tidepool, SameSeedSameBytes) {
  const std::string folder = NewFolder();
  ExpectOk(Train({"--save=a"}), {.folder = folder});
  ExpectOk(Train({"--save=b"}), {.folder = folder});
  ExpectOk(Train({"--save=two", "--threads=2"}), {.folder = folder});
  ExpectOk(Train({"--save=heap", "--workspace_mode=none"}), {.folder = folder});
  ExpectOk(Train({"--save=ahead", "--prefetch=3"}), {.folder = folder});
  ExpectOk(Train({"--save=other", "--seed=2"}), {.folder = folder});
  // Relative paths mean the working directory, and nothing else is left there.
  EXPECT_THAT(FilesIn(folder), ElementsAre("a", "ahead", "b", "heap", "other", "two"));
  const std::string bytes = ReadWhole(folder + "/a");
  EXPECT_GT(bytes.size(), 940584u);
  EXPECT_TRUE(ReadWhole(folder + "/b") == bytes);
  EXPECT_TRUE(ReadWhole(folder + "/two") == bytes);
  EXPECT_TRUE(ReadWhole(folder + "/heap") == bytes);
  EXPECT_TRUE(ReadWhole(folder + "/ahead") == bytes);
  EXPECT_FALSE(ReadWhole(folder + "/other") == bytes);
  EXPECT_THAT(Tidepool(Train({"--prefetch=-1"})).err,
              HasSubstr("flag --prefetch is -1, expected 0 (none) to 1024"));
}

TEST(Tidepool, PlanPlacesAndWrites) {
  const std::string folder = NewFolder();
  RunOptions options;
  options.folder = folder;
  const std::string input = DataPath("memory/planning/testdata/input.12.csv");
  const RunResult result = Tidepool(
      {"plan", "--input", input, "--capacity=12", "--output=out.csv", "--time_limit=10s"}, options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lower bound              12"));
  EXPECT_THAT(LineOf(result.out, "search peak"), HasSubstr("12  ratio 1.0000"));
  EXPECT_THAT(LineOf(result.out, "capacity"), HasSubstr("fits"));
  EXPECT_THAT(ReadWhole(folder + "/out.csv"), HasSubstr("id,lower,upper,size,offset\nb1,0,3,4,"));
  EXPECT_EQ(Tidepool({"plan", "--input", input, "--capacity=11", "--time_limit=10ms"}).status, 1);
}

TEST(Tidepool, KernelsListsTheProviders) {
  const std::string out = ExpectOk({"kernels"}).out;
  const std::string providers = LineOf(out, "linked providers: ");
  EXPECT_THAT(providers, HasSubstr("cpu"));
  EXPECT_THAT(providers, HasSubstr("xnnpack"));
  EXPECT_THAT(LineOf(out, "xnnpack: "), HasSubstr("interface of 202"));
  EXPECT_THAT(LineOf(out, "matmul                       host"), HasSubstr("f32   "));
  // What the rows say.
  EXPECT_THAT(LineOf(out, "conv2d "),
              testing::EndsWith("by shapes and attributes conv2d_grad_input, conv2d_grad_filter"));
  EXPECT_THAT(LineOf(out, "tanh "), testing::EndsWith(" an output             tanh_grad"));
  EXPECT_THAT(LineOf(out, "add "), testing::EndsWith("1 an output              other operators"));
  EXPECT_THAT(LineOf(out, "equal "), testing::EndsWith("1 an output              - (none)"));
}

TEST(Tidepool, HelpFitsOnAScreen) {
  const std::string overview = ExpectOk({"help"}).out;
  std::vector<std::string> commands;
  for (const std::string& line : Lines(overview)) {
    if (line.compare(0, 2, "  ") == 0) commands.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  EXPECT_THAT(commands, testing::IsSupersetOf({"train", "evaluate", "predict", "kernels"}));
  std::vector<std::string> texts = {overview};
  for (const std::string& command : commands) texts.push_back(ExpectOk({command, "--help"}).out);
  for (const std::string& text : texts) {
    EXPECT_LE(Lines(text).size(), 24u) << text;
    for (const std::string& line : Lines(text)) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Tidepool, MemoryReportSaysWhatANetworkTakesAndWhichBatchFits) {
  const std::vector<std::string> report = {"memory_report", "--model=mlp", "--input=28,28,1",
                                           "--batch=8"};
  EXPECT_THAT(ExpectOk(report).out,
              testing::AllOf(HasSubstr("network mlp, batch 8"), HasSubstr("training, mode enabled"),
                             HasSubstr("inference, mode enabled")));
  std::vector<std::string> more = report;
  more.insert(more.end(), {"--json", "--budget=16MiB", "--workspace_mode=separate"});
  EXPECT_THAT(ExpectOk(more).out, testing::AllOf(HasSubstr("\"mode\": \"separate\""),
                                                 HasSubstr("\"budget_bytes\": 16777216"),
                                                 HasSubstr("\"largest_training_batch\": "),
                                                 HasSubstr("\"most_that_is_tried\": 65536")));
  more = report;
  more.push_back("--budget=16MiB");
  EXPECT_THAT(ExpectOk(more).out, testing::Not(HasSubstr("no more is tried")));
  more.back() = "--budget=1TiB";
  EXPECT_THAT(ExpectOk(more).out, HasSubstr("inference 65536 (65536: no more is tried)\n"));
}

TEST(Tidepool, ProgressRewritesItsLineOnATerminal) {
  const RunResult result = ExpectOk(Train({"--epochs=2"}), {.terminal = true});
  EXPECT_THAT(result.out, HasSubstr("\repoch 1/2 "));
  EXPECT_THAT(result.out, HasSubstr("\repoch 2/2 "));
  EXPECT_THAT(result.out, HasSubstr("test accuracy 0."));
}

TEST(Tidepool, SmallStacksAndRefusedThreads) {
  if (!kCountersAreOurs) GTEST_SKIP() << "AddressSanitizer needs larger stacks";
  for (const int64_t kib : {128, 192, 256, 512}) {
    const RunResult result =
        ExpectOk(Train({"--threads=4", "--model=lenet"}), {.stack_bytes = kib << 10});
    EXPECT_THAT(result.out, Not(HasSubstr("refused"))) << kib;
    EXPECT_THAT(result.out, HasSubstr("test accuracy 0.")) << kib;
  }
  // Threads whose stacks would be larger than all addresses.
  const RunResult refused = ExpectOk(Train({"--threads=4"}), {.stack_bytes = int64_t{1} << 48});
  EXPECT_THAT(refused.out, HasSubstr("\n1 threads of 4: the system refused more"));
  EXPECT_THAT(refused.out, HasSubstr("not counted: the system refused a thread that counts them: "
                                     "Resource temporarily unavailable\n"));
}

TEST(Tidepool, InterruptedTrainingLeavesNothing) {
  const std::string folder = NewFolder();
  const RunResult result = Tidepool(Train({"--epochs=100000", "--save=m"}),
                                    {.folder = folder, .interrupt_after = "epoch 1/100000"});
  EXPECT_EQ(result.status, 128 + 2);
  EXPECT_THAT(FilesIn(folder), ElementsAre());
}

}  // namespace
}  // namespace tidepool::tools
