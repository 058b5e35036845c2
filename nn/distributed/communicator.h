// Communicator: this process's place among the ranks of a job, and what they do together.
//
//   auto communicator = Communicator::Open();   // of the linked transport: mpirun -n 4 program
//   communicator->AllReduce(absl::MakeSpan(sums), "sums");
//   Pending bucket;
//   communicator->Start(CollectiveKind::kAllReduce, gradients, bucket, "bucket");
//   ... compute ...
//   bucket.Wait();
//
// All ranks call the same collectives, of as many elements, in the same order. They run one behind
// the other on a thread of the communicator's own, so what is started goes on while the caller
// computes. Elements are the caller's memory, which stays until the collective is done: on the host,
// or on the device whose memory the transport moves (nccl_transport.h).
// Sums have the same bits on all ranks and in each run (collectives.h).
//
// Failure. What goes wrong in one collective ends the communicator: that call and all to come throw
// the same error, and collectives under way end soon. Abort() does this from outside, for whoever
// knows that a rank is gone (heartbeat.h). The last kLogged collectives that were begun can be read
// (Log()).
//
// Memory: kPieceBytes (collectives.h) and some hundred bytes; collectives allocate nothing.
// Threads: collectives on one at a time; Abort(), Log(), stats() and Progress() on any.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COMMUNICATOR_H_
#define TIDEPOOL_NN_DISTRIBUTED_COMMUNICATOR_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/collective.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

class Collectives;
class Communicator;

// A collective that was started. Its owner keeps it in place until it is done; the destructor waits
// for that.
class Pending {
 public:
  Pending() = default;
  ~Pending();
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // Returns at once where nothing was started, or it is done and was waited for. Throws what it
  // ended with.
  void Wait();

 private:
  friend class Communicator;
  Communicator* communicator_ = nullptr;  // null: nothing to wait for
  CollectiveCall call_;
  Pending* next_ = nullptr;
  bool done_ = false;
};

// Since the communicator began.
struct CommunicatorStats {
  int64_t collectives = 0;    // done
  int64_t bytes_sent = 0;     // by this rank, in exchanges: not those of a library's collectives
  int64_t messages_sent = 0;  // likewise
  double busy_seconds = 0;    // that collectives took
  double waited_seconds = 0;  // that callers waited for them: the rest was hidden behind other work
};

// How far a rank is.
struct RankProgress {
  int64_t step = 0;             // that set_step was told last
  int64_t begun = 0, done = 0;  // sequence numbers of collectives, from 1
};

class Communicator {
 public:
  static constexpr size_t kLogged = 64;  // collectives that Log() goes back

  // `open` is called on the communicator's thread, which alone uses the transport and ends it.
  // Throws what it throws, and kResourceExhausted where the system has no thread.
  explicit Communicator(std::function<std::unique_ptr<Transport>()> open);
  // Of a linked transport; see OpenTransport.
  static std::unique_ptr<Communicator> Open(const std::string& transport = "");
  // Waits for what was started.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // This process's number, from 0, and how many there are.
  int rank() const { return rank_; }
  int size() const { return size_; }
  // The device whose memory may be among elements, beside the host's; the host: there is none.
  Device device() const { return device_; }

  // In place, called by all ranks in the same order; collectives.h says what each does and what parts are. `site` says
  // what it is for; a literal. Throw kInvalidArgument (collectives.h), kUnimplemented for memory of another device than
  // device(), and what the communicator ended with.
  void Broadcast(Elements elements, int root, const char* site);
  void AllReduce(Elements elements, const char* site) {
    Run({CollectiveKind::kAllReduce, elements, 0, site, 0});
  }
  // Afterwards this rank's part has sums; what the others have is not to be read.
  void ReduceScatter(Elements elements, const char* site) {
    Run({CollectiveKind::kReduceScatter, elements, 0, site, 0});
  }
  // From each rank's part to all.
  void AllGather(Elements elements, const char* site) {
    Run({CollectiveKind::kAllGather, elements, 0, site, 0});
  }
  // Returns once all ranks have come here.
  void Barrier(const char* site) { Run({CollectiveKind::kBarrier, {}, 0, site, 0}); }

  // The same without waiting. Throws kFailedPrecondition where `pending` has not been waited for,
  // and what the communicator ended with.
  void Start(CollectiveKind kind, Elements elements, Pending& pending, const char* site);

  // Of training, for logs.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }

  // Ends the communicator with this error, unless it has ended already.
  void Abort(const Error& reason);
  // What it ended with; nothing while it works.
  std::optional<Error> failure() const;

  // From any thread.
  CommunicatorStats stats() const;
  RankProgress Progress() const;
  // Begun ones, oldest first.
  std::vector<CollectiveRecord> Log() const;

 private:
  friend class Pending;
  struct Logged {
    CollectiveCall call;
    int64_t step = 0;
  };
  void Run(const CollectiveCall& call);
  void Enqueue(Pending& pending);
  void Await(Pending& pending, bool throws);
  void Loop(const std::function<std::unique_ptr<Transport>()>& open);
  void Serve();
  void ThrowIfFailed() const;
  void CheckMoves(const CollectiveCall& call) const;

  int rank_ = 0, size_ = 1;
  Device device_ = Host();
  std::atomic<int64_t> step_{0}, begun_{0}, done_{0};

  mutable std::mutex mutex_;
  std::condition_variable queued_;         // for the communicator's thread
  mutable std::condition_variable ended_;  // for callers
  // Guarded by mutex_:
  Transport* transport_ = nullptr;  // while there is one
  Collectives* collectives_ = nullptr;
  Pending *first_ = nullptr, *last_ = nullptr;
  std::optional<Error> failure_;
  bool opened_ = false, stop_ = false;
  int64_t sequence_ = 0;
  double busy_seconds_ = 0, waited_seconds_ = 0;
  std::array<Logged, kLogged> log_;
  int64_t bytes_sent_ = 0, messages_sent_ = 0;  // of a transport that has gone

  std::thread thread_;  // last: uses all of the above
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COMMUNICATOR_H_
