// The HTTP library's server with limits that it does not have itself (connection.h), for pages that
// take nothing or a body, and answer with one. What a request claims is checked before anything is
// read or kept for it:
//
//   400       a head that is not of RFC 9112's form or whose end could be read in two ways
//             (request_head.h), a body for a page that takes none
//   404, 405  another page, or another method for it
//   408       a request that takes longer than request_time to arrive
//   411       a body without a length, which could end nowhere
//   413       a body that is larger than the limit, by its claim or by what arrives in chunks
//   415       a compressed or multipart body: nothing is unpacked
//   414, 431  a target or a head that is too large or has too many parts (request_head.h)
//   503       more connections or bytes of bodies at once than the limits; an answer to a body
//             counts as one until it is taken; idle connections make room first
//
// What pages make of bodies, their answers among it, they ask room for (WorkRoom): what bodies leave
// of theirs, and as much beside that as the limit says.
//
// Each has {"error": "..."} and closes the connection, as does a body in chunks, whose end the
// library does not check. Answers are whole and plain: neither ranges nor compression are asked of
// the library.
//
// Threads: a connection has one of `limits.connections` threads, made when first needed, as long as
// it is open: threads that read are cheap, and what computing takes is limited by who computes.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_BOUNDED_SERVER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_BOUNDED_SERVER_H_

#include <httplib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/connection.h"
#include "tidepool/examples/digit_server/listener.h"

namespace tidepool {

class BoundedServer : private httplib::Server {
 public:
  using Page = std::function<void(httplib::Response&)>;
  static constexpr size_t kStackBytes = size_t{512} << 10;
  using BodyPage = std::function<void(std::string_view body, httplib::Response&)>;

  // Throws kInvalidArgument naming a limit that is below 1 or above the most of its kind.
  explicit BoundedServer(const HttpLimits& limits);
  // Not within a page.
  ~BoundedServer() override { Stop(); }

  // Before Start. Pages may be asked for on several threads at once. What they throw is answered
  // 500. The path is compared as it stands. Throws kInvalidArgument for one that does not begin
  // with a slash or has a page already, kFailedPrecondition after Start.
  void AddPage(const std::string& path, Page page);          // GET and HEAD
  void AddBodyPage(const std::string& path, BodyPage page);  // POST
  // Before Start: runs once the time for answers is over (is_cut), before connections are ended, to
  // end what pages wait for. It calls nothing of the server that waits.
  void set_on_cut(std::function<void()> on_cut) { on_cut_ = std::move(on_cut); }
  // Of the whole process, before it has threads: glibc keeps what a thread has freed for that
  // thread, and all of them together would hold many times the bodies that there may be at once.
  // Threads that say nothing else have stacks of kStackBytes from then on.
  static void KeepLittleFreedMemory();
  // {"error": message}, as for all that is refused.
  static void AnswerError(httplib::Response& response, int status, const std::string& message);

  // Room for what a page makes of a body, from its limit's.
  class WorkRoom {
   public:
    WorkRoom(BoundedServer& server, int64_t bytes) : server_(server), bytes_(bytes) {
      is_there_ = server.TakeWorkRoom(bytes);
    }
    ~WorkRoom() {
      if (is_there_) server_.work_bytes_ -= bytes_;
    }
    WorkRoom(const WorkRoom&) = delete;
    WorkRoom& operator=(const WorkRoom&) = delete;
    bool is_there() const { return is_there_; }

   private:
    BoundedServer& server_;
    const int64_t bytes_;
    bool is_there_ = false;
  };
  const HttpLimits& limits() const { return limits_; }
  // Bytes of bodies and answers, and of work, that there are now.
  int64_t body_bytes() const { return body_bytes_.load(); }
  int64_t work_bytes() const { return work_bytes_.load(); }
  // How many answers of each status there have been, of all pages and of none.
  std::map<int, int64_t> answers() const;

  // Answers what comes through a socket that somebody else has accepted, until it ends, on this
  // thread; closes it.
  void ServeConnection(int socket);
  // Listens on a thread of its own; port 0: any that is free. Returns the port. Once: throws
  // kFailedPrecondition after that, stopped or not, and naming host, port and reason if it cannot;
  // kInvalidArgument for a port that is none, kResourceExhausted without threads.
  int Start(const std::string& host, int port);
  // The request that a connection has brought is answered, also of those that only the system has
  // taken yet, for stop_time at most; those that have not arrived are not waited for. Nothing is
  // done before Start. Any threads, also at once: all wait until it has stopped. Throws
  // kFailedPrecondition within a page, which it would wait for.
  void Stop();
  // As Stop, but where a page has not come back stop_time after the time for answers is over, false
  // without waiting any longer; so within a page. Stop waits for it then, as the destructor does.
  bool TryStop();
  // Stopping, and the time for answers is over.
  bool is_cut() const { return cut_.load(); }
  // False: stopped, or the system has ended it (no memory for sockets).
  bool is_listening() const { return listening_.load(); }

 private:
  struct Open {
    bool is_idle = true;    // between requests
    bool must_end = false;  // others need its thread
    bool lingers = false;   // it has been answered for the last time; what comes is thrown away
    Connection::Clock::time_point since = Connection::Clock::now();
  };

  enum class Stage { kNew, kStarting, kStarted, kStopping, kJoining, kStopped };

  // What AddPage and AddBodyPage refuse.
  void AddPath(const std::string& path, bool has_page, bool takes_body);
  void EnterStage(Stage stage);
  // Stop or TryStop.
  bool End(bool waits);
  bool HasEnded() const { return threads_end_ && waiting_.empty() && serving_ == 0; }
  // Without waiting for pages that have not come back; one thread, once.
  void EndAnswers();
  // Connections that the system takes before the listening thread does. Beyond, who comes is not
  // even refused, and asks again after a second.
  int Backlog() const { return std::max(limits_.connections, 1024); }
  void Listen();
  void Enqueue(int socket);
  void Work();
  bool AddThread();  // under the mutex; false: refused
  bool EndAnIdleConnection();
  void EndThreads();

  void Serve(Connection& connection, Open& open);
  // What arrived is no head that the library gets.
  void RefuseHead(Connection& connection);
  // Without the library and without waiting: a client that has not taken earlier answers gets none.
  void Send(int socket, int status, const std::string& message);
  // The same, to a connection that ends with it.
  void AnswerAtOnce(int socket, int status, const std::string& message);
  void CountAnswer(int status);
  // Whether the head is refused; it is answered then.
  bool CheckHead(const httplib::Request& request, httplib::Response& response);
  void ReadBody(const BodyPage& page, httplib::Response& response,
                const httplib::ContentReader& reader);
  // `status`: 413 or 503 by the limits; 0: why the connection gave no more says `failure`.
  void RefuseBody(int status, const Connection& connection, httplib::Response& response) const;

  // For bodies, and answers to them that nobody has taken yet; false: there is not so much.
  bool TakeRoom(int64_t bytes);
  bool TakeWorkRoom(int64_t bytes);
  // Of bodies and work together.
  bool IsWithinLimits() const {
    return body_bytes_.load() + work_bytes_.load() <= limits_.all_bodies_bytes + limits_.work_bytes;
  }

  static thread_local const BoundedServer* server_here_;  // that this thread answers for

  const HttpLimits limits_;
  std::map<std::string, bool> takes_body_;  // of each page
  std::atomic<int64_t> body_bytes_{0};      // of all requests, and of answers to them
  std::atomic<int64_t> work_bytes_{0};
  static constexpr size_t kStatuses = 600;
  std::array<std::atomic<int64_t>, kStatuses> answers_ = {};  // by status
  std::atomic<bool> stopping_{false}, cut_{false}, listening_{false};
  std::function<void()> on_cut_;
  std::unique_ptr<Listener> listener_;
  std::thread listening_thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  Stage stage_ = Stage::kNew;
  std::map<Connection*, Open> open_;
  std::deque<int> waiting_;  // sockets
  std::vector<std::thread> threads_;
  int64_t accepted_ = 0;
  int idle_threads_ = 0, serving_ = 0;
  int ending_ = 0;  // connections that must_end and have not ended yet
  bool threads_end_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_BOUNDED_SERVER_H_
