// The program where the system's limits are reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/examples/digit_server/server_program.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

std::string SavedModel() {
  const std::string path = testing::TempDir() + "/model.safetensors";
  nn::SaveModel(nn::MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled), path);
  return path;
}

// Room for so many more files than it has open now.
void LimitFiles(const ServerProgram& program, int more) {
  const std::string folder = "/proc/" + std::to_string(program.process()) + "/fd/";
  rlim_t limit = 0;
  for (; more > 0; ++limit) {
    if (!std::filesystem::is_symlink(folder + std::to_string(limit))) --more;
  }
  const rlimit limits = {limit, limit};
  ASSERT_EQ(prlimit(program.process(), RLIMIT_NOFILE, &limits, nullptr), 0);
}

// Idle connections end by themselves in an hour.
const std::vector<std::string> kPatient = {"--request_seconds=3600", "--connections=64"};

std::vector<std::string> Flags() {
  std::vector<std::string> flags = kPatient;
  flags.push_back("--model=" + SavedModel());
  return flags;
}

class OpenFiles : public testing::Test {
 protected:
  void SetUp() override {
#ifdef TIDEPOOL_UBSAN
    GTEST_SKIP() << "UBSan asks a pipe whether memory can be read: an object that it sees for the "
                    "first time when there are no more files is none to it";
#endif
  }
};

TEST_F(OpenFiles, IdleConnectionsMakeRoomAtTheLimit) {
  const ServerProgram program(Flags());
  LimitFiles(program, 8);
  std::vector<RawClient> idle;
  for (int i = 0; i < 40; ++i) {
    idle.emplace_back(program.port());
    idle.back().Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    ASSERT_EQ(idle.back().AnswersStatus(), 200) << i;
  }
  EXPECT_THAT(program.Errors(),
              HasSubstr("digit_server: accept a connection: Too many open files (ulimit -n): idle "
                        "connections make room\n"));
}

TEST_F(OpenFiles, WithoutIdleConnectionsThereIs503UntilOneEnds) {
  const ServerProgram program(Flags());
  LimitFiles(program, 4);
  std::vector<RawClient> busy;
  for (int i = 0; i < 4; ++i) {
    busy.emplace_back(program.port());
    busy.back().Send(Post(784, "Expect: 100-continue\r\n"));
    ASSERT_EQ(busy.back().AnswersStatus(), 100) << i;
  }
  for (int i = 0; i < 20; ++i) {
    const std::string answer = RawClient(program.port()).Answer();
    EXPECT_EQ(RawClient::StatusOf(answer), 503) << i;
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"too many open files\"}"));
  }
  for (RawClient& client : busy) {
    client.Send(kImage);
    EXPECT_EQ(client.AnswersStatus(), 200);
  }
  // They have been answered and wait for another request, or will in a moment: they make room.
  int status = 503;
  for (int i = 0; i < 3000 && status == 503; ++i) {
    RawClient next(program.port());
    next.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    status = next.AnswersStatus();
  }
  EXPECT_EQ(status, 200);
}

TEST(Signals, AReaderOfItsOutputThatGoesDoesNotEndIt) {
  ServerProgram program(Flags());
  program.CloseOutput();
  RawClient client(program.port());
  client.Send(Post(784) + kImage);
  EXPECT_EQ(client.AnswersStatus(), 200);
  EXPECT_EQ(program.Stop(), 1);
  EXPECT_THAT(program.Errors(), HasSubstr("digit_server: write standard output: Broken pipe\n"));
}

// Hours of one example: 5e11 operations.
std::string SlowModel() {
  Pool2dAttributes pool;
  pool.kernel_height = pool.kernel_width = 504;
  pool.stride_height = pool.stride_width = 1;
  pool.pad_top = pool.pad_bottom = pool.pad_left = pool.pad_right = 500;
  const std::string path = testing::TempDir() + "/slow.safetensors";
  nn::SaveModel(nn::Model("slow", 10,
                          std::make_unique<nn::Network>(nn::NetworkConfig::Sequential(
                              Shape{28, 28, 1}, {nn::Upsampling({36, 36}), nn::MaxPool2D(pool),
                                                 nn::GlobalPooling(), nn::Dense(10)}))),
                path);
  return path;
}

TEST(Signals, ARequestThatIsStillComputedDoesNotKeepTheProgram) {
  ServerProgram program(
      {"--model=" + SlowModel(), "--budget_mib=64", "--max_operations=1000000000000"});
  RawClient client(program.port());
  client.Send(Post(784, "Expect: 100-continue\r\n"));
  ASSERT_EQ(client.AnswersStatus(), 100);
  client.Send(kImage);
  EXPECT_FALSE(client.HasAnswer(500));
  EXPECT_EQ(program.Stop(), 1);
  EXPECT_THAT(program.Errors(),
              HasSubstr("digit_server: stopped by SIGTERM; a request is still computed, and is not "
                        "waited for\n"));
}

TEST_F(HostileClients, AnAddressThatCannotBeListenedOnIsNamedWithTheReason) {
  Start();
  const auto refused = [&](const std::string& host, int port) {
    DigitServerOptions options;
    options.host = host;
    options.port = port;
    DigitServer server(model_, options);
    const absl::Status status = CatchStatus([&] { server.Start(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  const std::string port = std::to_string(server_->port());
  EXPECT_EQ(refused("127.0.0.1", server_->port()),
            "digit server: cannot listen on 127.0.0.1:" + port + ": Address already in use");
  EXPECT_EQ(refused("192.0.2.1", 80),
            "digit server: cannot listen on 192.0.2.1:80: Cannot assign requested address");
  EXPECT_THAT(refused("no host", 80), HasSubstr("cannot listen on no host:80: "));
}

TEST_F(HostileClients, DescriptorsBeyond1023AreServed) {
  rlimit limits;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limits), 0);
  if (limits.rlim_max < 2000) GTEST_SKIP() << "ulimit -Hn is " << limits.rlim_max;
  const rlimit before = limits;
  limits.rlim_cur = std::max<rlim_t>(limits.rlim_cur, 2000);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limits), 0);
  Start();
  std::vector<int> files;
  for (int i = 0; i < 1100; ++i) files.push_back(dup(STDERR_FILENO));
  EXPECT_GT(files.back(), 1023);
  ExpectServed();
  for (const int file : files) close(file);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace tidepool
