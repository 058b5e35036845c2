// Bodies that are larger than they say, and what they, their images and answers to them take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/chunk_framing.h"
#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

[[maybe_unused]] int64_t ResidentBytes() {  // not of sanitizers
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(HostileClients, BodiesInChunksAreLimited) {
  Start();
  const auto greedy = [&](const std::string& piece) {
    RawClient client = Client();
    client.Send(kChunked);
    // A client that reads while it sends sees the answer; one that does not is not listened to for
    // ever.
    int64_t sent = 0;
    while (sent < 64 * kBody && !client.HasAnswer() && client.Send(piece)) {
      sent += static_cast<int64_t>(piece.size());
    }
    EXPECT_LT(sent, 64 * kBody);
    return client.AnswersStatus();
  };
  EXPECT_EQ(greedy(Chunk(std::string(10'000, 'g'))), 413);
  std::string tiny;  // mostly framing
  for (int i = 0; i < 1000; ++i) tiny += Chunk("g");
  EXPECT_EQ(greedy(tiny), 413);
  EXPECT_EQ(greedy(std::string(10'000, '0')), 413);  // a size that does not end
  // What is refused for its framing does not say that the body was too large.
  std::string small;
  for (int i = 0; i < 80'000; ++i) small += Chunk("g");
  EXPECT_THAT(Refusal(kChunked + small + "0\r\n\r\n"), HasSubstr("expected larger chunks"));
  // Its end is not checked by the library: no second request is looked for behind it.
  const std::string answer =
      Refusal(kChunked + Chunk(kImage) + "0\r\n\r\nGET /health HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(RawClient::StatusOf(answer), 200);
  EXPECT_THAT(answer, Not(HasSubstr("ok\n")));
}

// Nothing ends by itself here, and clients send no more than is shown: what is answered is refused
// for what has arrived, not for what is waited for.
TEST_F(HostileClients, ChunksThatCannotBeAreRefusedAtOnce) {
  Start();
  const auto expect = [&](const std::string& chunks, int status, const std::string& message) {
    RawClient client = Client();
    client.Send(kChunked + chunks);
    ASSERT_TRUE(client.HasAnswer(RawClient::kPatienceMs)) << chunks.substr(0, 40);
    const std::string answer = client.Answer();
    EXPECT_EQ(RawClient::StatusOf(answer), status) << answer;
    EXPECT_THAT(answer, HasSubstr(message)) << chunks.substr(0, 40);
    EXPECT_TRUE(client.Ends());
  };
  // One more than the limit of 0x40000, in one chunk or in several, and what overflows 64 bits.
  const std::string claim = "limit of 262144 bytes: its chunks claim more";
  for (const char* size :
       {"40001", "00040001", "ffffffffffffffff", "10000000000000001", "7fffffffffffffff0"}) {
    expect(size, 413, claim);
  }
  expect(Chunk(kImage) + "3fcf1\r\n", 413, claim);
  for (const char* size : {"zz\r\n", "-5\r\n", "+5\r\n", "\r\n", " 5\r\n", ";a\r\n", "\n"}) {
    expect(size, 400, "the size of a chunk: found ");
  }
  for (const char* size : {"0x310\r\n", "310g\r\n", "310 310\r\n", "310\n", "5,5\r\n"}) {
    expect(size, 400, "behind its digits, expected CR LF or an extension");
  }
  expect("310\rX", 400, "found \\\"X\\\" behind CR, expected LF");
  expect("310;a=\"b\nc", 400, "an extension of a chunk: found ");
  expect("310\r\n" + kImage + "X", 400, "a chunk of 784 bytes: found \\\"X\\\" behind them");
  expect(Chunk(kImage) + "0\r\nChecksum: 5\r\n\r\n", 400, "a trailer behind the last chunk");
  expect(Chunk(kImage) + "0\r\n\rX", 400, "behind CR, expected LF");
  // The limit itself, extensions and blanks are none of these.
  const std::string most(kBody - 1, 'b');
  expect(Chunk(most) + Chunk("b") + "0\r\n\r\n", 400, "found 262144");
  expect("310 \t ; name=\"value\"\r\n" + kImage + "\r\n000 \r\n\r\n", 200, "digits");
}

TEST(ChunkFramingTest, PartsAreAsTheWhole) {
  const std::string good = "5;e\r\n\r\n\r\n0\r\n0A\r\n0123456789\r\n0\r\n\r\n";
  const std::string bad = "5\r\n01234\r\n6\r\n012345\r\n5\r\n";
  for (size_t part = 1; part <= good.size(); ++part) {
    ChunkFraming framing(15), small(15);
    for (size_t i = 0; i < good.size(); i += part) {
      EXPECT_EQ(framing.Add(good.substr(i, part)).status, 0) << part;
    }
    int status = 0;
    size_t i = 0;
    for (; i < bad.size() && status == 0; i += part) status = small.Add(bad.substr(i, part)).status;
    EXPECT_EQ(status, 413);
    const size_t decides = bad.size() - 3;  // the digit that is too much
    EXPECT_EQ(i, decides / part * part + part) << part;
  }
}

TEST_F(HostileClients, AllBodiesTogetherAreLimited) {
  options_.limits.all_bodies_bytes = 2 * kBody;
  Start();
  const std::string all_but_one(kBody - 1, 'b');
  RawClient first = Client(), second = Client();
  first.Send(Post(kBody) + all_but_one);
  second.Send(Post(kBody) + all_but_one);
  int status = 0;
  for (int i = 0; i < 3000 && status != 503; ++i) {  // when both have arrived
    RawClient third = Client();
    third.Send(Post(3, "Expect: 100-continue\r\n"));  // a claim only: it takes no room from them
    status = third.AnswersStatus();
    ASSERT_THAT(status, testing::AnyOf(100, 503));
  }
  EXPECT_EQ(status, 503);
  // Without a claim it is what arrives that counts, before it is larger than its answer.
  const std::string some = Chunk(std::string(1000, 'b'));
  EXPECT_EQ(RawClient::StatusOf(Refusal(kChunked + some + "0\r\n\r\n")), 503);
  first.Send("b");
  EXPECT_EQ(first.AnswersStatus(), 400);  // not a number of images
  ExpectServed();
}

// glibc keeps for each thread what that thread has freed.
TEST_F(HostileClients, BodiesThatAreGoneLeaveNoMemoryInTheirThreads) {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  BoundedServer::KeepLittleFreedMemory();
  options_.limits.body_bytes = int64_t{8} << 20;
  options_.limits.all_bodies_bytes = int64_t{16} << 20;
  options_.reader.budget_bytes = int64_t{8} << 10;  // of a batch of one image, not of 32
  Start();
  ExpectServed();
  const std::string many(784 * 10'000, 'm');
  const int64_t before = ResidentBytes();
  std::vector<RawClient> open;  // each keeps its thread
  for (int i = 0; i < 40; ++i) {
    open.push_back(Client());
    open.back().Send(Post(many.size()) + many);
    EXPECT_EQ(open.back().AnswersStatus(), 507);
  }
  EXPECT_LT(ResidentBytes() - before, 2 * options_.limits.all_bodies_bytes + (16 << 20));
#endif
}

TEST_F(HostileClients, FormsAsCurlSendsThemAreBodies) {
  Start();
  RawClient client = Client();
  std::string many;
  for (int i = 0; i < 100; ++i) many += kImage;
  client.Send(Post(many.size(),
                   "Content-Type: application/x-www-form-urlencoded\r\n"
                   "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.AnswersStatus(), 100);
  client.Send(many);
  EXPECT_EQ(client.AnswersStatus(), 200);
}

// 64 bytes an image are more than an image of a few pixels.
TEST_F(HostileClients, AnAnswerIsNoLargerThanABody) {
  model_ = nn::MakeModel("mlp", {1, 1, 1}, 10, 3, WorkspaceMode::kEnabled);
  options_.reader.budget_bytes = int64_t{1} << 30;
  Start();
  const std::string most(kBody / 64, 'i');
  RawClient client = Client();
  client.Send(Post(most.size()) + most);
  EXPECT_EQ(client.AnswersStatus(), 200);
  client.Send(Post(most.size() + 1) + most + "i");
  const std::string answer = client.Answer();
  EXPECT_EQ(RawClient::StatusOf(answer), 413);
  EXPECT_THAT(answer, HasSubstr("found 4097 images, expected at most 4096"));
}

TEST_F(HostileClients, AnswersThatNobodyTakesCountAsBodies) {
  // As small as a model can be: hundreds of thousands of images are computed.
  model_ = nn::Model(
      "pixel", 10,
      std::make_unique<nn::Network>(Shape{1, 1, 1}, std::vector<nn::AnyLayer>{nn::Dense(10)}));
  options_.reader.budget_bytes = int64_t{1} << 30;
  options_.limits.body_bytes = int64_t{16} << 20;
  options_.limits.all_bodies_bytes = int64_t{18} << 20;
  Start();
  const std::string many(options_.limits.body_bytes / 64, 'i');  // 10 MiB of text
  RawClient first(server_->port(), 4096);
  first.Send(Post(many.size()) + many);
  EXPECT_TRUE(first.HasAnswer(RawClient::kPatienceMs));  // more than sockets hold
  // Its beginning: one that is not refused has megabytes.
  const std::string answer = Refusal(Post(many.size()) + many).substr(0, 1000);
  EXPECT_EQ(RawClient::StatusOf(answer), 503);
  EXPECT_THAT(answer, HasSubstr("too many bodies at once"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
  RawClient few = Client();
  few.Send(Post(10) + "ten pixels");
  EXPECT_EQ(few.AnswersStatus(), 200);
  EXPECT_EQ(first.AnswersStatus(), 200);
  // Taken, or will be in a moment.
  int status = 503;
  for (int i = 0; i < 3000 && status == 503; ++i) {
    RawClient client = Client();
    client.Send(Post(many.size()) + many);
    status = client.AnswersStatus();
  }
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace tidepool
