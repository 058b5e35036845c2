// The thread of a heartbeat. See heartbeat.h.
#ifndef TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_WATCH_H_
#define TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/heartbeat.h"
#include "tidepool/nn/distributed/heartbeat_link.h"

namespace tidepool::nn {

class Heartbeat::Watch {
 public:
  using Clock = std::chrono::steady_clock;

  // Rank 0 listens, others connect, before the constructor returns.
  Watch(Communicator& communicator, HeartbeatConfig config);
  ~Watch();

  void Fail(const std::string& message);
  // For as long as another rank may take to say what it met.
  void AwaitVerdict();
  std::string verdict() const;

 private:
  // Another rank as this one sees it; on ranks from 1 on there is rank 0 alone.
  struct Peer {
    int rank = 0;
    std::unique_ptr<HeartbeatLink> link;  // null: gone, with a word (kBye)
    bool said_bye = false;
    Clock::time_point heard;
    RankProgress progress;
    std::optional<std::vector<CollectiveRecord>> log;
  };

  void Listen(Descriptor listener, const std::string& cookie);
  void ConnectToRank0(const std::vector<std::string>& addresses, int port,
                      const std::string& cookie);
  void Loop();
  // Takes what comes until then, or until this process has a word for the thread, or the job ends.
  void PollPeers(Clock::time_point until);
  void Take(Peer& peer, const Frame& frame);
  void Beat();
  // Rank 0: whether something is wrong; the job ends then.
  void Judge();
  std::string CauseOfStall();
  // Rank 0: asks all for their logs and tells all.
  void EndJob(std::string cause);
  void Declare(const std::string& verdict);
  // "; this rank was in ...", or nothing.
  std::string MyLastCollective() const;
  bool HasPeers() const;
  RankProgress MyProgress() const { return communicator_.Progress(); }
  void Wake() noexcept;

  Communicator& communicator_;
  const HeartbeatConfig config_;
  const int rank_;
  std::vector<Peer> peers_;  // the thread's
  Descriptor wake_;          // an eventfd
  std::string cause_;        // what a frame said that the job ends by
  std::vector<RankProgress> seen_;
  Clock::time_point changed_;  // when any rank last came on

  mutable std::mutex mutex_;
  std::condition_variable told_;
  // Guarded by mutex_:
  std::string verdict_, failure_;
  bool stop_ = false, failure_told_ = false;

  std::thread thread_;  // last: uses all of the above
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_WATCH_H_
