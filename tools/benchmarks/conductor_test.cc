#include "tidepool/tools/benchmarks/conductor.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/tools/benchmarks/side_process.h"

namespace tidepool::tools {
namespace {

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

// A side whose first step of each answer takes a second and each other `nanoseconds`; writes what
// it is asked to `log`.
std::vector<std::string> FakeSide(const std::string& log, const std::string& name, int nanoseconds,
                                  int parameters) {
  return Shell("while read verb count rest; do echo \"" + name + " $verb $count $rest\" >>" + log +
               "; case $verb in hello) echo ok fake;; begin) echo ok " +
               std::to_string(parameters) +
               ";; memory) echo ok 2048;; steps) line='ok 0.25 1000000000/7'; "
               "while [ $count -gt 1 ]; do line=\"$line " +
               std::to_string(nanoseconds) +
               "/3000000\"; count=$((count - 1)); done; echo $line;; "
               "esac; done");
}

std::string ErrorOf(const std::vector<std::string>& command, const std::string& request) {
  try {
    SideProcess(command).Ask(request);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(SideProcess, AnswersAndErrors) {
  SideProcess echo(Shell("while read line; do echo \"ok <$line>\"; done"));
  EXPECT_EQ(echo.Ask("one two"), "<one two>");
  EXPECT_EQ(echo.Ask("three"), "<three>");
  EXPECT_EQ(ErrorOf(Shell("read x; echo error too warm"), "steps 1"),
            "/bin/sh, asked \"steps 1\": too warm");
  EXPECT_EQ(ErrorOf(Shell("read x; echo hm"), "hello"),
            "/bin/sh, asked \"hello\": answered \"hm\", expected ok or error");
  EXPECT_EQ(ErrorOf(Shell("exit 127"), "hello"),
            "/bin/sh, asked \"hello\": the process ended with status 127");
  EXPECT_EQ(ErrorOf(Shell("read x; kill -9 $$"), "hello"),
            "/bin/sh, asked \"hello\": the process was ended by signal 9");
  EXPECT_NE(ErrorOf({"/no/such/program"}, "hello").find("cannot start /no/such/program"),
            std::string::npos);
}

TEST(Conductor, AlternatesAndLeavesOutTheFirstStep) {
  const std::string log = testing::TempDir() + "/asked";
  std::remove(log.c_str());
  MeasurementConfig config;
  config.tidepool = FakeSide(log, "A", 2000000, 10);
  config.peer = FakeSide(log, "B", 5000000, 10);
  config.data = "some folder";
  config.rounds = 3;
  config.steps = 2;
  config.warm_up = 4;
  const CaseResult result = Measure(config, {"mlp", 32, 1, "sgd"});

  EXPECT_EQ(result.tidepool.milliseconds, (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(result.tidepool.cpu_milliseconds, (std::vector<double>{3, 3, 3}));
  EXPECT_EQ(result.tidepool.steps, 2);
  EXPECT_EQ(result.tidepool.parameters, 10);
  EXPECT_EQ(result.tidepool.peak_kib, 2048);
  EXPECT_EQ(result.tidepool.loss, 0.25);
  ASSERT_TRUE(result.peer.has_value());
  EXPECT_EQ(result.peer->milliseconds, (std::vector<double>{5, 5, 5}));
  std::ifstream file(log);
  std::vector<std::string> asked;
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    asked.push_back(line);
  }
  EXPECT_EQ(asked, (std::vector<std::string>{"A begin mlp 32 1 sgd some folder", "A steps 4",
                                             "B begin mlp 32 1 sgd some folder", "B steps 4",
                                             "A steps 3", "B steps 3", "B steps 3", "A steps 3",
                                             "A steps 3", "B steps 3", "B memory", "A memory"}));
}

TEST(Conductor, FillsARoundAndDoesWithoutAPeer) {
  MeasurementConfig config;
  config.tidepool = FakeSide("/dev/null", "A", 2000000, 10);
  config.rounds = 1;
  config.data = "x";
  config.round_seconds = 0.02;
  EXPECT_EQ(Measure(config, {"mlp", 32, 1, "sgd"}).tidepool.steps, 10);
  config.round_seconds = 0;
  const CaseResult result = Measure(config, {"mlp", 32, 1, "sgd"});
  EXPECT_EQ(result.tidepool.steps, 3);
  EXPECT_FALSE(result.peer.has_value());
  EXPECT_EQ(Greeting(config.tidepool), "fake");
}

TEST(Conductor, RefusesNetworksThatDiffer) {
  MeasurementConfig config;
  config.tidepool = FakeSide("/dev/null", "A", 1, 10);
  config.peer = FakeSide("/dev/null", "B", 1, 11);
  config.data = "x";
  try {
    Measure(config, {"mlp", 32, 1, "sgd"});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "mlp: Tidepool's network has 10 parameters, the peer's 11; expected the same");
  }
  config.peer = Shell("read x; echo ok 10; read x; echo ok 0.5 1/1");
  EXPECT_THROW(Measure(config, {"mlp", 32, 1, "sgd"}), Error);  // too few steps
}

}  // namespace
}  // namespace tidepool::tools
