// What requests take of the program's memory, at most and when they are gone: the bound of
// docs/security.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/examples/digit_server/server_program.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kConnections = 48, kWorkers = 2;
constexpr int64_t kBodyMib = 8, kBudgetMib = 2;

// What the sanitizer that this is built with adds to so many bytes.
int64_t Sanitized([[maybe_unused]] int64_t bytes) {
#if defined(__SANITIZE_THREAD__)
  // It keeps records of all that was ever touched: there is no bound to hold it to.
  return std::numeric_limits<int64_t>::max();
#elif defined(__SANITIZE_ADDRESS__)
  return bytes + bytes / 8 + 24 * kMiB;  // its shadow, and what its allocator keeps of each size
#else
  return bytes;
#endif
}

// AddressSanitizer would keep 256 MiB of what has been freed, which are no memory of the server's.
void KeepLittleFreedMemoryUnderSanitizers() {
#ifdef __SANITIZE_ADDRESS__
  const char* const others = std::getenv("ASAN_OPTIONS");
  const std::string options = std::string(others != nullptr ? others : "") +
                              ":quarantine_size_mb=1:thread_local_quarantine_size_kb=16";
  setenv("ASAN_OPTIONS", options.c_str(), 1);
#endif
}

struct Case {
  const char* name;
  int64_t height, width;
  bool chunked;
};

class RequestMemory : public ::testing::TestWithParam<Case> {};

std::string Request(size_t bytes, bool chunked) {
  std::string request = "POST /digits HTTP/1.1\r\nHost: h\r\n";
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
  KeepLittleFreedMemoryUnderSanitizers();
  const ServerProgram program({"--model=" + model, "--connections=" + std::to_string(kConnections),
                               "--workers=" + std::to_string(kWorkers),
                               "--body_mib=" + std::to_string(kBodyMib),
                               "--budget_mib=" + std::to_string(kBudgetMib)});
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
      idle.back().Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
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
  // As docs/security.md has them, and what pages of code and the allocator's own take.
  const int64_t bodies = 4 * kBodyMib * kMiB;
  const int64_t kept = kWorkers * 2 * kBudgetMib * kMiB + kConnections * (kMiB / 4);
  EXPECT_LE(peak, Sanitized(bodies + kept + 4 * kMiB));
  EXPECT_LE(left, Sanitized(kept + 4 * kMiB));
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
