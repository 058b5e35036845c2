// More requests than the server can take, counted and not timed: each is answered, those beyond the
// queue at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/examples/digit_server/slow_layer.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

// Of all servers of this process.
const std::string kLabels = "{service=\"digit inference\",device=\"host\"";
const std::string kWaiting = "tidepool_inference_waiting_requests" + kLabels + "}";

class Overload : public HostileClients {
 protected:
  // One batch of one image at a time, two that wait.
  Overload() {
    model_ = SlowModel(state_);
    options_.reader.workers = 1;
    options_.reader.queue_limit = 2;
  }
  ~Overload() override { state_.Open(); }

  // Asks, and comes back when the request waits, or has an answer.
  RawClient& Ask(const std::string& images = kImage) {
    clients_.push_back(Client());
    clients_.back().Send(Post(images.size()) + images);
    return clients_.back();
  }
  // Batches of at most so many images since Start(); "": of any.
  double Batches(const std::string& images) {
    return Metric(
        "tidepool_inference_batch_examples_" +
        (images.empty() ? "count" + kLabels : "bucket" + kLabels + ",le=\"" + images + "\"") + "}");
  }
  void Fill() {
    clients_.reserve(100);
    Ask();
    state_.AwaitInside(1);
    for (int i = 1; i <= options_.reader.queue_limit; ++i) {
      Ask();
      AwaitMetric(kWaiting, i);
    }
  }

  SlowLayer::State state_;
  std::vector<RawClient> clients_;
};

TEST_F(Overload, WhatTheQueueHasNoRoomForIsRefusedAtOnceAndTheServerServesAgain) {
  options_.reader.queue_limit = 8;
  Start();
  for (int round = 0; round < 3; ++round) {
    state_.Close();
    clients_.clear();
    Fill();
    // As many again. The model stands still: these are answered though nothing is computed.
    for (int i = 0; i < 9; ++i) {
      const std::string answer = Ask().Answer();
      EXPECT_EQ(RawClient::StatusOf(answer), 503);
      EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
      EXPECT_THAT(answer, HasSubstr("{\"error\":\"8 requests wait; try again later\"}"));
    }
    EXPECT_EQ(Metric(kWaiting), 8);
    state_.Open();
    std::map<int, int> statuses;
    for (size_t i = 0; i < 9; ++i) ++statuses[clients_[i].AnswersStatus()];
    EXPECT_THAT(statuses, ::testing::ElementsAre(::testing::Pair(200, 9)));
    // On the same connections, too: who was refused may ask again.
    clients_.back().Send(Post(kImage.size()) + kImage);
    EXPECT_EQ(clients_.back().AnswersStatus(), 200);
    EXPECT_EQ(Metric("digit_server_requests_total{outcome=\"answered\"}"), 10 * (round + 1));
    EXPECT_EQ(Metric("digit_server_requests_total{outcome=\"queue_full\"}"), 9 * (round + 1));
    EXPECT_EQ(Metric(kWaiting), 0);
  }
}

TEST_F(Overload, WhoWaitsBeyondTheDeadlineIsToldSo) {
  options_.reader.deadline = std::chrono::milliseconds(50);
  Start();
  clients_.reserve(100);
  Ask();
  state_.AwaitInside(1);
  const std::string answer = Ask().Answer();
  EXPECT_EQ(RawClient::StatusOf(answer), 504);
  EXPECT_THAT(answer, HasSubstr("no worker was free by the request's deadline"));
  EXPECT_EQ(Metric("digit_server_requests_total{outcome=\"deadline\"}"), 1);
  EXPECT_EQ(Metric(kWaiting), 0);
  state_.Open();
  EXPECT_EQ(clients_[0].AnswersStatus(), 200);  // it had begun
}

TEST_F(Overload, RequestsOfSeveralConnectionsAreABatch) {
  model_ = SlowModel(state_, 1);
  options_.reader.queue_limit = 8;
  Start();
  const double all = Batches(""), small = Batches("4"), up_to_eight = Batches("8");
  Fill();
  state_.Open();
  for (RawClient& client : clients_) EXPECT_EQ(client.AnswersStatus(), 200);
  EXPECT_EQ(Batches("") - all, 2);  // of 1 and of 8
  EXPECT_EQ(Batches("8") - up_to_eight, 2);
  EXPECT_EQ(Batches("4") - small, 1);
}

// However many wait: nobody could stop what takes hours together.
TEST_F(Overload, ABatchIsNoLargerThanAPart) {
  Start();
  const double all = Batches(""), single = Batches("1");
  Fill();
  state_.Open();
  for (RawClient& client : clients_) EXPECT_EQ(client.AnswersStatus(), 200);
  EXPECT_EQ(Batches("") - all, 3);
  EXPECT_EQ(Batches("1") - single, 3);
}

// While others take each room that its parts leave.
TEST_F(Overload, ARequestThatHasBegunIsNotRefusedInItsMiddle) {
  options_.reader.queue_limit = 1;
  Start();
  std::string many;
  for (int i = 0; i < 200; ++i) many += kImage;
  for (int round = 0; round < 3; ++round) {
    state_.Close();
    RawClient first = Client();
    first.Send(Post(many.size()) + many);
    state_.AwaitInside(1);
    std::atomic<bool> ends = false;
    std::vector<std::thread> others;
    for (int i = 0; i < 4; ++i) {
      others.emplace_back([&] {
        while (!ends) {
          RawClient client = Client();
          for (int asked = 0; !ends && asked < 500; ++asked) {
            client.Send(Post(kImage.size()) + kImage);
            EXPECT_THAT(client.AnswersStatus(), ::testing::AnyOf(200, 503));
          }
        }
      });
    }
    AwaitMetric(kWaiting, 1);
    state_.Open();
    EXPECT_EQ(first.AnswersStatus(), 200);
    ends = true;
    for (std::thread& thread : others) thread.join();
  }
}

// Parts of 32 images are 98 KiB; answers take 2.5 KiB more.
TEST_F(Overload, ImagesThatWaitTakeNoMoreThanThereIsForThem) {
  model_ = SlowModel(state_, 1);
  options_.reader.queue_limit = 50;
  options_.reader.budget_bytes = 300 << 10;
  options_.limits.all_bodies_bytes = kBody;
  std::string many;
  for (int i = 0; i < 32; ++i) many += kImage;
  Start();
  clients_.reserve(100);
  Ask(many);
  state_.AwaitInside(1);
  int waiting = 0;
  std::string answer;
  for (; waiting < 40; ++waiting) {
    RawClient& client = Ask(many);
    while (!client.HasAnswer(1) && Metric(kWaiting) <= waiting) continue;
    if (!client.HasAnswer()) continue;
    answer = client.Answer();
    break;
  }
  // 556 KiB of room for bodies of 24.5 KiB and what is made of them.
  EXPECT_EQ(waiting, 3);
  EXPECT_EQ(RawClient::StatusOf(answer), 503);
  EXPECT_THAT(answer, HasSubstr("too many images wait for the memory there is"));
  state_.Open();
  for (int i = 0; i <= waiting; ++i) {
    EXPECT_EQ(clients_[static_cast<size_t>(i)].AnswersStatus(), 200);
  }
  EXPECT_EQ(Metric("digit_server_bytes{of=\"work\"}"), 0);
}

TEST_F(Overload, ItIsNotReadyOnceItDrainsThoughItServes) {
  state_.Open();
  Start();
  EXPECT_EQ(RawClient::StatusOf(Get("/readyz")), 200);
  server_->Drain();
  EXPECT_EQ(RawClient::StatusOf(Get("/readyz")), 503);
  EXPECT_EQ(RawClient::StatusOf(Get("/healthz")), 200);
  EXPECT_EQ(Metric("digit_server_ready"), 0);
  EXPECT_EQ(Ask().AnswersStatus(), 200);
}

TEST_F(Overload, WhatWaitsWhenItStopsIsAnswered) {
  options_.limits.stop_time = kForEver;
  Start();
  Fill();
  std::thread stops([&] { server_->Stop(); });
  while (Client().is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  state_.Open();
  for (RawClient& client : clients_) EXPECT_EQ(client.AnswersStatus(), 200);
  stops.join();
}

}  // namespace
}  // namespace tidepool
