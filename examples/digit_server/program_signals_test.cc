// What signals do to the program: the model is read again, it drains, it stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/examples/digit_server/server_program.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

void Save(const std::string& path, uint64_t seed) {
  nn::SaveModel(nn::MakeModel("mlp", {28, 28, 1}, 10, seed, WorkspaceMode::kEnabled), path);
}

std::string ModelPath() { return testing::TempDir() + "/signals.safetensors"; }

std::string Get(const ServerProgram& program, const std::string& page) {
  RawClient client(program.port());
  client.Send("GET " + page + " HTTP/1.1\r\nHost: h\r\n\r\n");
  return client.Answer();
}

// The whole answer but its date, if it has one.
std::string Digits(const ServerProgram& program) {
  RawClient client(program.port());
  client.Send(Post(784) + kImage);
  const std::string answer = client.Answer();
  EXPECT_EQ(RawClient::StatusOf(answer), 200) << answer;
  return answer.substr(answer.find("\r\n\r\n"));
}

TEST(Signals, HangUpReadsTheModelAgainWhileRequestsGoOn) {
  Save(ModelPath(), 3);
  ServerProgram program({"--model=" + ModelPath(), "--workers=2"});
  const std::string first = Digits(program);
  EXPECT_EQ(Digits(program), first);

  // Requests without a break: each is answered, by one model or the other.
  std::vector<std::string> answers;
  std::atomic<bool> is_enough = false;
  std::thread asks([&] {
    for (bool is_last = false; !is_last;) {
      is_last = is_enough;  // before it asks: by the model that was there then
      answers.push_back(Digits(program));
    }
  });
  Save(ModelPath(), 4);
  program.Signal(SIGHUP);
  EXPECT_EQ(program.NextLine(), "digit_server: the model has been read again");
  const std::string second = Digits(program);
  EXPECT_NE(second, first);
  is_enough = true;
  asks.join();
  for (const std::string& answer : answers) EXPECT_TRUE(answer == first || answer == second);
  EXPECT_EQ(answers.back(), second);

  // What cannot be read leaves it as it is, and the next one is read.
  std::ofstream(ModelPath(), std::ios::binary | std::ios::trunc) << "no model";
  program.Signal(SIGHUP);
  while (program.Errors().find("the model stays as it is: ") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(Digits(program), second);
  // Nor does one for other images.
  nn::SaveModel(nn::MakeModel("mlp", {14, 14, 1}, 10, 3, WorkspaceMode::kEnabled), ModelPath());
  program.Signal(SIGHUP);
  const auto refusals = [&] {
    int count = 0;
    const std::string errors = program.Errors();
    for (size_t at = 0; (at = errors.find("stays as it is", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  while (refusals() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(Digits(program), second);
  Save(ModelPath(), 3);
  program.Signal(SIGHUP);
  EXPECT_EQ(program.NextLine(), "digit_server: the model has been read again");
  EXPECT_EQ(Digits(program), first);
  EXPECT_EQ(program.Stop(), 0);
}

TEST(Signals, ItDrainsUntilASecondSignalAndServesMeanwhile) {
  Save(ModelPath(), 3);
  for (const int last : {SIGTERM, SIGINT}) {
    ServerProgram program({"--model=" + ModelPath(), "--drain_seconds=3600"});
    EXPECT_EQ(RawClient::StatusOf(Get(program, "/readyz")), 200);
    program.Signal(SIGTERM);
    while (RawClient::StatusOf(Get(program, "/readyz")) != 503)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(RawClient::StatusOf(Get(program, "/healthz")), 200);
    EXPECT_THAT(Get(program, "/metrics"), HasSubstr("digit_server_ready 0\n"));
    Digits(program);
    program.Signal(SIGHUP);  // does not end it
    Digits(program);
    program.Signal(last);
    EXPECT_EQ(program.NextLine(), "digit_server: stopped by SIGTERM");
    EXPECT_EQ(program.AwaitEnd(), 0);
  }
}

TEST(Signals, DrainingEndsByItself) {
  Save(ModelPath(), 3);
  ServerProgram program({"--model=" + ModelPath(), "--drain_seconds=1"});
  program.Signal(SIGINT);
  EXPECT_EQ(program.NextLine(), "digit_server: stopped by SIGINT");
  EXPECT_EQ(program.AwaitEnd(), 0);
}

}  // namespace
}  // namespace tidepool
