// A server and clients that send it what they like.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_HOSTILE_CLIENTS_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_HOSTILE_CLIENTS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "tidepool/examples/digit_server/digit_server.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
inline constexpr std::chrono::hours kForEver(1);
inline constexpr int64_t kBody = 256 << 10;
inline const std::string kImage(784, 'i');

inline std::string Post(size_t length, const std::string& more = "") {
  return "POST /digits HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(length) + "\r\n" +
         more + "\r\n";
}
inline const std::string kChunked =
    "POST /digits HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

inline std::string Chunk(const std::string& bytes) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

class HostileClients : public ::testing::Test {
 protected:
  HostileClients() : model_(nn::MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled)) {
    options_.limits.body_bytes = kBody;
    // Nothing ends by itself unless a test says so.
    options_.limits.request_time = options_.limits.answer_time = options_.limits.idle_time =
        kForEver;
    options_.reader.deadline = kForEver;
  }
  void Start() {
    server_ = std::make_unique<DigitServer>(model_, options_);
    server_->Start();
  }
  RawClient Client() { return RawClient(server_->port()); }
  // What a client that sends this gets; the connection ends behind it.
  std::string Refusal(const std::string& request) {
    RawClient client = Client();
    client.Send(request);
    const std::string answer = client.Answer();
    EXPECT_TRUE(client.Ends()) << request.substr(0, 200);
    return answer;
  }
  void ExpectServed() {
    RawClient client = Client();
    client.Send(Post(784) + kImage);
    EXPECT_THAT(client.Answer(), ::testing::HasSubstr("{\"digits\":[{"));
  }
  std::string Get(const std::string& path) {
    RawClient client = Client();
    client.Send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return client.Answer();
  }
  // Of /metrics; NaN where there is no such series.
  double Metric(const std::string& series) {
    const std::string page = Get("/metrics");
    const size_t at = page.find("\n" + series + " ");
    if (at == std::string::npos) return std::stod("nan");
    return std::stod(page.substr(at + series.size() + 2));
  }
  void AwaitMetric(const std::string& series, double value) {
    while (Metric(series) != value) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  nn::Model model_;
  DigitServerOptions options_;
  std::unique_ptr<DigitServer> server_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_HOSTILE_CLIENTS_H_
