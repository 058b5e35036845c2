#include "tidepool/tools/benchmarks/step_server.h"

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/nn/data/digits.h"

namespace tidepool::tools {
namespace {

constexpr char kData[] = "examples/data/mnist";  // 8000 training images

class RecordingSide : public StepSide {
 public:
  std::string Describe() override { return "recorder\n1.0"; }
  int64_t Begin(const TrainingCase& c, const LabelledImages& images) override {
    if (c.model != "mlp") throw std::runtime_error("no such model");
    begun = c;
    count = images.count;
    return 4711;
  }
  double Step(int64_t first) override {
    firsts.push_back(first);
    return 0.5;
  }

  TrainingCase begun;
  int64_t count = 0;
  std::vector<int64_t> firsts;
};

std::vector<std::string> Serve(StepSide& side, const std::string& requests) {
  std::istringstream in(requests);
  std::stringstream out;
  ServeSteps(side, in, out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  return lines;
}

TEST(StepServer, AnswersEachRequestWithOneLine) {
  RecordingSide side;
  const auto lines =
      Serve(side, std::string("hello\nbegin mlp 32 2 adam ") + kData + "\nsteps 3\nmemory\n");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "ok recorder 1.0");
  EXPECT_EQ(lines[1], "ok 4711");
  EXPECT_EQ(lines[2].rfind("ok 0.5", 0), 0u) << lines[2];
  std::istringstream steps(lines[2].substr(3));
  double loss, wall, cpu;
  char slash;
  steps >> loss;
  for (int i = 0; i < 3; ++i) {
    steps >> wall >> slash >> cpu;
    EXPECT_TRUE(steps) << lines[2];
    EXPECT_EQ(slash, '/');
    EXPECT_GE(wall, 0);
    EXPECT_GE(cpu, 0);
  }
  EXPECT_FALSE(steps >> wall) << "more than three steps: " << lines[2];
  EXPECT_EQ(lines[3].rfind("ok ", 0), 0u);
  EXPECT_EQ(side.begun.model, "mlp");
  EXPECT_EQ(side.begun.batch, 32);
  EXPECT_EQ(side.begun.threads, 2);
  EXPECT_EQ(side.begun.updater, "adam");
  EXPECT_EQ(side.count, 8000);
}

TEST(StepServer, StepsFollowTheFileInFullBatches) {
  RecordingSide side;
  Serve(side, std::string("begin mlp 3000 1 sgd ") + kData + "\nsteps 3\nsteps 2\n");
  EXPECT_EQ(side.firsts, (std::vector<int64_t>{0, 3000, 0, 3000, 0}));
  RecordingSide all;
  Serve(all, std::string("begin mlp 8000 1 sgd ") + kData + "\nsteps 2\n");
  EXPECT_EQ(all.firsts, (std::vector<int64_t>{0, 0}));
}

// Grows by what is touched between begin and memory, and by no more than a little.
TEST(StepServer, MemoryIsTheGrowthOfThePeak) {
  class Grows : public RecordingSide {
   public:
    double Step(int64_t) override {
      std::vector<char> touched(64 << 20, 1);
      return touched[touched.size() / 2];
    }
  } side;
  const auto lines = Serve(side, std::string("begin mlp 1 1 sgd ") + kData + "\nsteps 1\nmemory\n");
  ASSERT_EQ(lines.size(), 3u);
  const int64_t kib = std::atoll(lines[2].substr(3).c_str());
  if (kib == -1) GTEST_SKIP() << "this kernel does not reset the peak of resident memory";
  EXPECT_GE(kib, 60 << 10);
  EXPECT_LE(kib, 80 << 10);
}

TEST(StepServer, MemoryIsTheDevicesWhereTheSideHasOne) {
  class OnDevice : public RecordingSide {
    int64_t DevicePeakKib() override { return 123; }
  } side;
  const auto lines = Serve(side, std::string("begin mlp 32 2 adam ") + kData + "\nmemory\n");
  EXPECT_EQ(lines.back(), "ok 123");
}

TEST(StepServer, SaysWhatIsWrong) {
  const std::string begin = std::string("begin mlp 32 1 sgd ") + kData + "\n";
  const struct {
    std::string requests, expected;
  } cases[] = {
      {"steps 3\n", "error request \"steps 3\" before begin"},
      {"begin mlp 32 sgd\n", "expected MODEL BATCH THREADS UPDATER DATA"},
      {"begin mlp 0 1 sgd x\n", "expected MODEL BATCH THREADS UPDATER DATA"},
      {"begin mlp 32 1 sgd no folder\n", "no folder"},
      {std::string("begin mlp 8001 1 sgd ") + kData + "\n",
       "8000 images, fewer than a batch of 8001"},
      {std::string("begin other 32 1 sgd ") + kData + "\n", "error no such model"},
      {begin + begin, "has begun before"},
      {begin + "steps 0\n", "expected a count of at least 1"},
      {begin + "steps many\n", "expected a count of at least 1"},
      {begin + "stop\n", "expected hello, begin, steps or memory"},
  };
  for (const auto& c : cases) {
    RecordingSide side;
    const std::string last = Serve(side, c.requests).back();
    EXPECT_EQ(last.rfind("error ", 0), 0u) << c.requests << last;
    EXPECT_NE(last.find(c.expected), std::string::npos) << c.requests << last;
  }
}

}  // namespace
}  // namespace tidepool::tools
