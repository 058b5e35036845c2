// The server over real sockets, against what the network says by itself.
#include "tidepool/examples/digit_server/digit_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <png.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/decimal_comma.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string RawImage(int seed) {
  std::string bytes(784, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>((i * 31 + static_cast<size_t>(seed) * 97) % 256);
  }
  return bytes;
}

std::string Png(const std::string& pixels, uint32_t height, uint32_t width, uint32_t format,
                int row_stride) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = height;
  image.width = width;
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), row_stride, nullptr);
  std::string png(size, '\0');
  png_image_write_to_memory(&image, png.data(), &size, 0, pixels.data(), row_stride, nullptr);
  png.resize(size);
  return png;
}

class DigitServerTest : public ::testing::Test {
 protected:
  DigitServerTest() : model_(nn::MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled)) {
    options_.reader.budget_bytes = 1 << 20;
    options_.limits.body_bytes = 4 << 20;
    Start();
  }
  void Start() {
    server_ = std::make_unique<DigitServer>(model_, options_);
    server_->Start();
    client_ = std::make_unique<httplib::Client>("127.0.0.1", server_->port());
  }
  httplib::Result Post(const std::string& body) {
    return client_->Post("/digits", body, "application/octet-stream");
  }
  // The class and its probability by the network alone.
  json Expected(const std::string& raw) {
    NDArray x = Empty({1, 28, 28, 1}, DType::kFloat32, Place::Heap());
    for (size_t i = 0; i < raw.size(); ++i) {
      x.mutable_data<float>()[i] = static_cast<float>(static_cast<uint8_t>(raw[i])) / 255.0f;
    }
    const std::vector<float> p = Softmax(model_.network->Output(x)).ToVector<float>();
    const auto best = std::max_element(p.begin(), p.end());
    return {{"digit", best - p.begin()}, {"probability", *best}};
  }

  nn::Model model_;
  DigitServerOptions options_;
  std::unique_ptr<DigitServer> server_;
  std::unique_ptr<httplib::Client> client_;
};

void ExpectSame(const json& found, const json& expected) {
  EXPECT_EQ(found["digit"], expected["digit"]);
  EXPECT_NEAR(found["probability"].get<double>(), expected["probability"].get<double>(), 1e-6);
}

TEST_F(DigitServerTest, RawAndPngGiveWhatTheNetworkSays) {
  const std::string raw = RawImage(1);
  const httplib::Result answer = Post(raw);
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->status, 200) << answer->body;
  ExpectSame(json::parse(answer->body)["digits"][0], Expected(raw));
  const httplib::Result png = Post(Png(raw, 28, 28, PNG_FORMAT_GRAY, 0));
  EXPECT_EQ(png->body, answer->body);
  // Colours become grey.
  std::string rgb;
  for (const char c : raw) rgb.append(3, c);
  const httplib::Result coloured = Post(Png(rgb, 28, 28, PNG_FORMAT_RGB, 0));
  ASSERT_EQ(coloured->status, 200);
  EXPECT_EQ(json::parse(coloured->body)["digits"][0]["digit"],
            json::parse(answer->body)["digits"][0]["digit"]);
}

TEST_F(DigitServerTest, SeveralImagesInOneRequest) {
  const httplib::Result answer = Post(RawImage(1) + RawImage(2) + RawImage(3));
  ASSERT_EQ(answer->status, 200);
  const json digits = json::parse(answer->body)["digits"];
  ASSERT_EQ(digits.size(), 3u);
  for (int i = 0; i < 3; ++i) ExpectSame(digits[static_cast<size_t>(i)], Expected(RawImage(i + 1)));
}

TEST_F(DigitServerTest, WhatIsNoImageIsRefusedByNameAndSize) {
  EXPECT_EQ(Post("")->status, 400);
  const httplib::Result cut = Post(RawImage(1).substr(1));
  EXPECT_EQ(cut->status, 400);
  EXPECT_THAT(cut->body, HasSubstr("found 783 bytes, expected a multiple of 784"));
  const std::string png = Png(RawImage(1), 28, 28, PNG_FORMAT_GRAY, 0);
  const httplib::Result broken = Post(png.substr(0, png.size() / 2));
  EXPECT_EQ(broken->status, 400);
  EXPECT_THAT(broken->body, HasSubstr("png: "));
  const httplib::Result small = Post(Png(RawImage(1), 14, 56, PNG_FORMAT_GRAY, 0));
  EXPECT_EQ(small->status, 400);
  EXPECT_THAT(small->body, HasSubstr("14 x 56 pixels, expected 28 x 28"));
  EXPECT_EQ(Post(std::string(5 << 20, 'x'))->status, 413);
  EXPECT_EQ(client_->Get("/nothing")->status, 404);
  EXPECT_EQ(client_->Get("/health")->body, "ok\n");
  EXPECT_EQ(Post(RawImage(1))->status, 200);
}

TEST_F(DigitServerTest, OfAPngOnlyWhatPixelsNeedIsRead) {
  const std::string png = Png(RawImage(1), 28, 28, PNG_FORMAT_GRAY, 0);
  const httplib::Result plain = Post(png);
  // Behind the header, of 25 bytes; its sum is not looked at, and neither is what it stands for.
  std::string text = std::string("\0\0\0\4zTXtk\0\0xsumm", 16);
  std::string with_texts = png;
  for (int i = 0; i < 1000; ++i) with_texts.insert(33, text);
  const httplib::Result answer = Post(with_texts);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, plain->body);
  // More than the pixels can be.
  std::string long_one = png;
  long_one.insert(33, std::string("\0\2\0\0IDAT", 8) + std::string(131076, 'd'));
  const httplib::Result refused = Post(long_one);
  EXPECT_EQ(refused->status, 400);
  EXPECT_THAT(refused->body, HasSubstr("chunk IDAT at byte 33: more than"));
  const httplib::Result cut = Post(png.substr(0, 40));
  EXPECT_EQ(cut->status, 400);
  EXPECT_THAT(cut->body, HasSubstr("png: a chunk at byte 33 needs"));
}

TEST_F(DigitServerTest, APngEndsWithItsLastChunk) {
  const std::string png = Png(RawImage(1), 28, 28, PNG_FORMAT_GRAY, 0);
  EXPECT_EQ(Post(png)->status, 200);
  std::string broken = png;
  ++broken.back();
  for (const std::string& bytes : {png + "x", png + png, png.substr(0, png.size() - 12), broken}) {
    const httplib::Result answer = Post(bytes);
    EXPECT_EQ(answer->status, 400) << bytes.size();
    EXPECT_THAT(answer->body, HasSubstr("IEND"));
  }
}

std::string ManyImages(int count) {
  std::string many;
  for (int i = 0; i < count; ++i) many += RawImage(i);
  return many;
}

TEST_F(DigitServerTest, ARequestBeyondTheBudgetIsRefusedAndTheNextIsServed) {
  options_.reader.budget_bytes = 8 << 10;
  options_.reader.batch_limit = 100;
  Start();
  const std::string many = ManyImages(1000);
  for (int i = 0; i < 3; ++i) {
    const httplib::Result answer = Post(many);
    ASSERT_EQ(answer->status, 507) << answer->body;
    EXPECT_THAT(answer->body, ::testing::StartsWith("{\"error\":\"100 images at once take too much "
                                                    "memory, expected fewer: "));
    EXPECT_THAT(answer->body, HasSubstr("a new array"));
    EXPECT_THAT(answer->body, HasSubstr("exceed a budget"));
    EXPECT_EQ(Post(RawImage(1))->status, 200);
  }
}

// Before, a request of 1,000 images was beyond a budget of 1 MiB.
TEST_F(DigitServerTest, ARequestOfManyImagesTakesTheMemoryOfAPart) {
  const httplib::Result answer = Post(ManyImages(1000));
  ASSERT_EQ(answer->status, 200) << answer->body;
  const json digits = json::parse(answer->body)["digits"];
  ASSERT_EQ(digits.size(), 1000u);
  for (const int i : {0, 31, 32, 999}) {
    ExpectSame(digits[static_cast<size_t>(i)], Expected(RawImage(i)));
  }
}

TEST_F(DigitServerTest, TheMemoryPageShowsTheTree) {
  ASSERT_EQ(Post(RawImage(1))->status, 200);
  const httplib::Result page = client_->Get("/memory");
  ASSERT_EQ(page->status, 200);
  EXPECT_THAT(page->body, HasSubstr("model mlp"));
  EXPECT_THAT(page->body, HasSubstr("digit inference"));
  EXPECT_THAT(page->body, HasSubstr("capped"));
  EXPECT_THAT(page->body, HasSubstr("worker 1"));
}

TEST_F(DigitServerTest, TheMetricsPageIsWhatPrometheusReads) {
  const auto scrape = [&] {
    const httplib::Result page = client_->Get("/metrics");
    EXPECT_EQ(page->status, 200);
    EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    const Exposition read = ExpositionParser::Parse(page->body);
    EXPECT_EQ(read.error, "");
    return read;
  };
  const auto cycles = [](const Exposition& read) {
    double sum = 0;
    const auto family = read.families.find("tidepool_workspace_cycles_total");
    if (family == read.families.end()) return sum;
    for (const auto& [labels, value] : family->second.samples) sum += value;
    return sum;
  };
  const ExpositionLabels labels = {{"service", "digit inference"}, {"device", "host"}};
  ExpositionLabels of_one = labels;
  of_one["le"] = "1";
  const Exposition first = scrape();
  const auto since = [&](const Exposition& read, const std::string& name,
                         const ExpositionLabels& which) {
    return read.Value(name, which) - first.Value(name, which);
  };
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Post(RawImage(i))->status, 200);
  ASSERT_EQ(Post("no image")->status, 400);
  ASSERT_EQ(client_->Get("/nothing")->status, 404);
  const Exposition read = scrape();
  EXPECT_EQ(read.Value("digit_server_requests_total", {{"outcome", "answered"}}), 5);
  EXPECT_EQ(read.Value("digit_server_requests_total", {{"outcome", "no_image"}}), 1);
  EXPECT_EQ(read.Value("digit_server_requests_total", {{"outcome", "queue_full"}}), 0);
  EXPECT_EQ(read.Value("digit_server_request_seconds_count"), 5);
  EXPECT_EQ(read.Value("digit_server_request_seconds_bucket", {{"le", "+Inf"}}), 5);
  EXPECT_GT(read.Value("digit_server_request_seconds_sum"), 0);
  EXPECT_EQ(since(read, "tidepool_inference_batch_examples_bucket", of_one), 5);
  EXPECT_EQ(since(read, "tidepool_inference_batch_examples_sum", labels), 5);
  EXPECT_EQ(read.Value("digit_server_http_answers_total", {{"code", "404"}}), 1);
  EXPECT_EQ(read.Value("digit_server_http_answers_total", {{"code", "200"}}), 6);
  EXPECT_EQ(read.Value("tidepool_inference_waiting_requests", labels), 0);
  EXPECT_EQ(read.Value("digit_server_ready"), 1);
  EXPECT_GE(cycles(read), cycles(first) + 5);
  EXPECT_GT(read.Value("tidepool_memory_bytes", {{"device", "host"}, {"kind", "allocated"}}), 0);
}

// In the locale of a user who writes 1,5.
TEST_F(DigitServerTest, NumbersHaveAPointInAnyLocale) {
  const std::string body = RawImage(1) + RawImage(2);
  const std::string expected = Post(body)->body;
  EXPECT_THAT(expected, ::testing::ContainsRegex("\"probability\":0\\.[0-9]"));
  const DecimalCommaScope comma;
  if (!comma.is_set()) GTEST_SKIP() << "there is no C.UTF-8";
  EXPECT_EQ(Post(body)->body, expected);
  const httplib::Result metrics = client_->Get("/metrics");
  ASSERT_EQ(metrics->status, 200);
  EXPECT_EQ(ExpositionParser::Parse(metrics->body).error, "");
  for (const std::string& page : {metrics->body, client_->Get("/memory")->body}) {
    EXPECT_THAT(page, ::testing::Not(::testing::ContainsRegex("[0-9],[0-9]")));
  }
}

TEST_F(DigitServerTest, ManyClientsGrowNothing) {
  const auto load = [&](int requests) {
    std::atomic<int> served{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c) {
      clients.emplace_back([&, c] {
        httplib::Client client("127.0.0.1", server_->port());
        for (int i = 0; i < requests; ++i) {
          const httplib::Result answer =
              client.Post("/digits", RawImage(c), "application/octet-stream");
          if (answer && answer->status == 200) ++served;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(served, 4 * requests);
  };
  load(20);
  const OwnershipSnapshot before = NDManager::System().Snapshot();
  load(100);
  EXPECT_EQ(ToString(Diff(before, NDManager::System().Snapshot())), "");
  EXPECT_LE(before.size(), 5u);  // root, model, the service and each of its workers
}

TEST_F(DigitServerTest, ASteadyServiceAsksTheSystemForNoTensorMemory) {
  const auto ask = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      ASSERT_EQ(Post(RawImage(i))->status, 200);
      ASSERT_EQ(Post(RawImage(1) + RawImage(2) + RawImage(3))->status, 200);
    }
  };
  ask(100);
  const int64_t before = MemoryTracker::Global().Snapshot().system_allocations;
  ask(100);
  EXPECT_EQ(MemoryTracker::Global().Snapshot().system_allocations, before);
}

TEST_F(DigitServerTest, AModelIsReplacedWhileItServes) {
  const std::string raw = RawImage(1);
  const std::string first = Post(raw)->body;
  auto second = std::make_shared<nn::Model>(
      nn::MakeModel("mlp", {28, 28, 1}, 10, 4, WorkspaceMode::kEnabled));
  const std::weak_ptr<nn::Model> watched = second;
  server_->UpdateModel(second);
  model_.network->parameters().mutable_data<float>()[0] = 7;  // nobody reads it any more
  second.reset();
  const std::string by_second = Post(raw)->body;
  EXPECT_NE(by_second, first);
  EXPECT_FALSE(watched.expired());
  EXPECT_THAT(CatchStatus([&] {
                server_->UpdateModel(std::make_shared<nn::Model>(
                    nn::MakeModel("mlp", {8, 8, 1}, 10, 4, WorkspaceMode::kEnabled)));
              }).message(),
              HasSubstr("same inputs"));
  EXPECT_EQ(Post(raw)->body, by_second);
  server_->UpdateModel(std::make_shared<nn::Model>(
      nn::MakeModel("mlp", {28, 28, 1}, 10, 5, WorkspaceMode::kEnabled)));
  EXPECT_TRUE(watched.expired());
}

TEST_F(DigitServerTest, APortThatIsTakenIsNamed) {
  DigitServerOptions options;
  options.port = server_->port();
  DigitServer second(model_, options);
  EXPECT_THAT(CatchStatus([&] { second.Start(); }).message(), HasSubstr("cannot listen on 127."));
}

}  // namespace
}  // namespace tidepool
