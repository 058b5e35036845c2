// Ends of a server, and of connections that make room, at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/network.h"

namespace tidepool {
namespace {

TEST(BoundedServer, APageThatDoesNotComeBackIsNotWaitedFor) {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_begun = false, may_end = false;
  HttpLimits limits;
  limits.stop_time = std::chrono::milliseconds(100);
  BoundedServer server(limits);
  server.AddBodyPage("/digits", [&](std::string_view, httplib::Response&) {
    std::unique_lock<std::mutex> lock(mutex);
    has_begun = true;
    changed.notify_all();
    changed.wait(lock, [&] { return may_end; });
  });
  RawClient client(server.Start("127.0.0.1", 0));
  client.Send(Post(784) + kImage);
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return has_begun; });
  }
  EXPECT_FALSE(server.TryStop());
  EXPECT_TRUE(server.is_cut());
  EXPECT_FALSE(server.TryStop());
  EXPECT_EQ(client.Answer(), "");
  {
    const std::lock_guard<std::mutex> lock(mutex);
    may_end = true;
  }
  changed.notify_all();
  server.Stop();
  EXPECT_TRUE(server.TryStop());
  EXPECT_FALSE(server.is_listening());
}

// Says that an image of it takes long, and takes as long as the test lets it.
class SlowLayer final : public nn::Layer {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t images = 0;
    bool may_end = false;
  };
  explicit SlowLayer(State& state) : state_(state) {}
  std::string Kind() const override { return "slow"; }
  Shape OutputShape(const Shape&) const override { return {10}; }
  nn::LayerCost CostOf(absl::Span<const Shape>) const override { return {1e12, 10}; }
  NDArray Forward(nn::LayerContext&, const NDArray& input) const override {
    std::unique_lock<std::mutex> lock(state_.mutex);
    state_.images += input.dim(0);
    state_.changed.notify_all();
    state_.changed.wait(lock, [&] { return state_.may_end; });
    return Zeros({input.dim(0), 10});
  }

 private:
  State& state_;
};

// However many images a request has, and however long they would take together.
TEST_F(HostileClients, WhoIsNotAnsweredAnyMoreIsNotComputedOn) {
  SlowLayer::State state;
  model_ = nn::Model(
      "slow", 10,
      std::make_unique<nn::Network>(Shape{28, 28, 1}, std::vector<nn::AnyLayer>{SlowLayer(state)}));
  options_.limits.stop_time = std::chrono::milliseconds(1);
  Start();
  RawClient client = Client();
  client.Send(Post(100 * kImage.size()));
  for (int i = 0; i < 100; ++i) client.Send(kImage);
  {
    std::unique_lock<std::mutex> lock(state.mutex);
    state.changed.wait(lock, [&] { return state.images > 0; });
  }
  std::thread stops([&] { server_->Stop(); });
  EXPECT_EQ(client.Answer(), "");  // cut
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.may_end = true;
  }
  state.changed.notify_all();
  stops.join();
  EXPECT_EQ(state.images, 1);
}

TEST_F(HostileClients, TryStopIsStopWhereAllComeBack) {
  Start();
  ExpectServed();
  EXPECT_TRUE(server_->TryStop());
  EXPECT_FALSE(server_->is_listening());
}

// A request that has arrived is no idle connection, whatever its thread has seen of it.
TEST_F(HostileClients, WhoHasAskedMakesNoRoom) {
  options_.limits.connections = 2;
  Start();
  for (int i = 0; i < 2000; ++i) {
    RawClient first = Client();
    first.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    const RawClient second = Client(), third = Client();
    const int status = first.AnswersStatus();
    ASSERT_TRUE(status == 200 || status == 503) << i << ": " << status;
  }
}

TEST(BoundedServer, StacksAreAsLargeAsItSays) {
  const pid_t child = fork();
  if (child == 0) {
    BoundedServer::KeepLittleFreedMemory();
    size_t bytes = 0;
    std::thread([&] {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
      pthread_attr_getstacksize(&attributes, &bytes);
      pthread_attr_destroy(&attributes);
    }).join();
    _exit(bytes <= BoundedServer::kStackBytes && bytes > BoundedServer::kStackBytes / 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tidepool
