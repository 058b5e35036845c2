// A client's connection as the HTTP library reads and writes it, with what the library has no
// limits for: how long a request may take to arrive, how long its head and the framing of its body
// may be, and how long a client may take its answer. All waiting is until a moment that is known
// beforehand, so that a client that sends a byte a second gets no more time than one that sends
// none.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_CONNECTION_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_CONNECTION_H_

#include <httplib.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/chunk_framing.h"
#include "tidepool/examples/digit_server/request_head.h"

namespace tidepool {

struct HttpLimits {
  static constexpr int kMostConnections = 1 << 16;
  static constexpr int64_t kMostHeadBytes = int64_t{1} << 20;  // which each connection has room for
  static constexpr int64_t kMostBodyBytes = int64_t{1} << 40;
  static constexpr std::chrono::hours kMostTime{24};

  int connections = 64;                            // open at once
  int64_t head_bytes = int64_t{16} << 10;          // request line and headers
  int64_t body_bytes = int64_t{16} << 20;          // of one request
  int64_t all_bodies_bytes = int64_t{64} << 20;    // of all requests at once
  int64_t work_bytes = int64_t{16} << 20;          // what pages make of bodies, beside those
  std::chrono::milliseconds request_time{10'000};  // from a request's first byte to its last
  std::chrono::milliseconds answer_time{10'000};   // for a client to take an answer
  std::chrono::milliseconds idle_time{5'000};      // between two requests of a connection
  std::chrono::milliseconds stop_time{2'000};      // for answers under way when the server stops
};

// Throws kInvalidArgument naming a limit that is below 1 or above the most of its kind.
void CheckHttpLimits(const HttpLimits& limits);

// Threads: one; ShutDown and HasArrived any, while the socket is open.
class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Failure {
    kNone,
    kTooSlow,
    kBadHead,
    kHeadTooLarge,
    kFramingTooLarge,
    kBadChunk,
    kClosed
  };

  // The socket stays the caller's, who closes it.
  Connection(int socket, const HttpLimits& limits)
      : socket_(socket), limits_(limits), buffer_(static_cast<size_t>(limits.head_bytes)) {}

  // Waits for the next request's first byte, at most idle_time. False: there will be none.
  bool WaitForRequest();
  // Waits until a head has arrived whole and is one that can be read in one way only (HeadLines);
  // the time begins. False: failure(), of kBadHead refusal(). Until BodyFollows nothing but the
  // head is read then.
  bool ReadHead();
  void BodyFollows() { in_head_ = false; }
  // What is wrong with bytes that have arrived, of kBadHead and kBadChunk.
  const HeadRefusal& refusal() const { return refusal_; }
  // Whether something of a request has arrived.
  bool has_bytes() const { return begin_ < end_; }
  // Whether something waits in the system. Any thread, as ShutDown.
  bool HasArrived() const;
  // Bytes of the body that have got through; what else arrives is framing.
  void CountBody(size_t bytes) { body_bytes_ += static_cast<int64_t>(bytes); }
  // Of the answer to a body, which others have no room for until it is taken.
  void set_answer_bytes(int64_t bytes) { answer_bytes_ = bytes; }
  int64_t TakeAnswerBytes() { return std::exchange(answer_bytes_, 0); }
  // Why reading ended.
  Failure failure() const { return failure_; }

  // Nothing more is read as a request: something may be left that is none.
  void CloseAfterwards() { must_close_ = true; }
  bool must_close() const { return must_close_; }
  // Ends what is sent and throws away what still arrives, for a moment: closing a socket with
  // unread bytes would take the answer from a client that still sends.
  void Linger();
  // Ends all waiting.
  void ShutDown();

  bool is_readable() const override;
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  using httplib::Stream::write;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  // False at `until`.
  bool WaitUntil(short events, Clock::time_point until) const;
  ssize_t Fail(Failure failure);
  // Once, what has arrived, behind what is not read yet; waits for it. False: failure().
  bool Receive();

  const int socket_;
  const HttpLimits& limits_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what has arrived and is not read
  size_t head_left_ = 0;        // of it, the head's
  bool in_head_ = true, answering_ = false, must_close_ = false;
  std::optional<ChunkFraming> framing_;  // of a body in chunks
  HeadRefusal refusal_;
  int64_t read_bytes_ = 0;  // of the body with its framing
  int64_t body_bytes_ = 0;
  int64_t answer_bytes_ = 0;
  Clock::time_point request_until_, answer_until_;
  Failure failure_ = Failure::kNone;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_CONNECTION_H_
