// What requests take of the program's memory, at most and when they are gone: the bound of
// docs/security.md.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/nn/model_file.h"

extern char** environ;

namespace tidepool {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kConnections = 48, kWorkers = 2;
constexpr int64_t kBodyMib = 8, kBudgetMib = 2;

// The program, as a user starts it.
class Program {
 public:
  explicit Program(const std::string& model) {
    int out[2];
    if (pipe2(out, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<std::string> words = {"examples/digit_server/digit_server",
                                      "--model=" + model,
                                      "--port=0",
                                      "--connections=" + std::to_string(kConnections),
                                      "--workers=" + std::to_string(kWorkers),
                                      "--body_mib=" + std::to_string(kBodyMib),
                                      "--budget_mib=" + std::to_string(kBudgetMib)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    EXPECT_EQ(std::sscanf(line.c_str(), "digit_server: http://127.0.0.1:%d/digits", &port_), 1)
        << line;
  }
  ~Program() {
    kill(process_, SIGTERM);
    int status = -1;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    EXPECT_EQ(status, 0);
  }
  int port() const { return port_; }
  // VmRSS, VmHWM.
  int64_t Bytes(const std::string& field) const {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string word; status >> word;) {
      int64_t kib = 0;
      if (word == field + ":" && status >> kib) return kib << 10;
    }
    ADD_FAILURE() << field;
    return 0;
  }

 private:
  pid_t process_ = -1;
  int port_ = 0;
};

struct Case {
  const char* name;
  int64_t height, width;
  bool chunked;
};

class RequestMemory : public ::testing::TestWithParam<Case> {};

std::string Request(size_t bytes, bool chunked) {
  std::string request = "POST /digits HTTP/1.1\r\n";
  if (!chunked) {
    return request + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n" +
           std::string(bytes, '\0');
  }
  request += "Transfer-Encoding: chunked\r\n\r\n";
  for (size_t left = bytes; left > 0;) {
    const size_t chunk = std::min(left, size_t{1} << 16);
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", chunk);
    request += size + std::string(chunk, '\0') + "\r\n";
    left -= chunk;
  }
  return request + "0\r\n\r\n";
}

TEST_P(RequestMemory, BurstsOverChangingConnectionsStayBelowTheStatedBound) {
  const auto [name, height, width, chunked] = GetParam();
  const std::string model = testing::TempDir() + "/" + name + ".safetensors";
  nn::SaveModel(nn::MakeModel("mlp", {height, width, 1}, 10, 3, WorkspaceMode::kEnabled), model);
  const Program program(model);
  const int64_t before = program.Bytes("VmRSS");
  std::mt19937 random(7);
  const auto pixels = static_cast<size_t>(height * width);
  // Up to the limit, no whole image, more than a budget, and what a budget has room for.
  const std::vector<size_t> sizes = {kBodyMib * kMiB,
                                     kBodyMib * kMiB - 1,
                                     kBodyMib * kMiB / pixels * pixels,
                                     5 * kMiB / pixels * pixels,
                                     1000 * pixels,
                                     400 * pixels,
                                     1};
  std::set<int> statuses;
  for (int burst = 0; burst < 16; ++burst) {
    std::vector<RawClient> idle;  // move what follows to other threads
    for (size_t i = 0, count = 10 + random() % 30; i < count; ++i) {
      idle.emplace_back(program.port());
      idle.back().Send("GET /health HTTP/1.1\r\n\r\n");
      ASSERT_EQ(idle.back().AnswersStatus(), 200);
    }
    std::vector<std::string> requests;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(Request(sizes[random() % sizes.size()], chunked));
    }
    std::vector<int> answers(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] {
        RawClient client(program.port());
        client.Send(requests[i]);
        answers[i] = client.AnswersStatus();
      });
    }
    for (std::thread& client : clients) client.join();
    statuses.insert(answers.begin(), answers.end());
  }
  EXPECT_THAT(statuses, testing::IsSubsetOf({200, 400, 413, 507}));
  EXPECT_THAT(statuses, testing::Contains(200));
  EXPECT_GT(statuses.size(), 1u);
  const int64_t peak = program.Bytes("VmHWM") - before, left = program.Bytes("VmRSS") - before;
  std::printf("%s: at most %.1f MiB more than before, left %.1f MiB\n", name,
              static_cast<double>(peak) / kMiB, static_cast<double>(left) / kMiB);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // As docs/security.md has them, and what pages of code and the allocator's own take.
  const int64_t bodies = 4 * kBodyMib * kMiB;
  const int64_t kept = kWorkers * 2 * kBudgetMib * kMiB + kConnections * (kMiB / 4);
  EXPECT_LE(peak, bodies + kept + 4 * kMiB);
  EXPECT_LE(left, kept + 4 * kMiB);
#endif
}

INSTANTIATE_TEST_SUITE_P(All, RequestMemory,
                         testing::Values(Case{"digits", 28, 28, false},
                                         Case{"digits_in_chunks", 28, 28, true},
                                         Case{"few_pixels", 2, 3, false},
                                         Case{"few_pixels_in_chunks", 2, 3, true},
                                         Case{"a_pixel", 1, 1, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tidepool
