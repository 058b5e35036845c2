// Heartbeat: notices, beside the transport, that a rank has died, hangs or has failed, and ends the
// others with an error that says which, how far it was, and where the ranks parted.
//
//   auto communicator = Communicator::Open();
//   Heartbeat heartbeat(*communicator);
//   heartbeat.Guard([&] { ... train ... });
//
// MPI itself waits for ever for a rank that hangs, and its fault tolerance is not in what
// distributions ship. So every rank has a TCP connection to rank 0 and a thread that sleeps: each
// `interval` both sides say how far they are. Rank 0 ends the job when
//   a connection closes without a word                    the rank has died: at once
//   nothing comes from a rank                             it is stopped, or its machine is gone:
//                                                         after `limit`
//   some wait in a collective and none comes on           those that are behind hang, or ranks
//                                                         differ: after `limit`
//   a rank says so                                        it has met an error (Guard): at once
// It asks all for their last collectives first (Communicator::Log) and tells everybody the first on
// which they differ. Where rank 0 itself is gone the others end by themselves; one that is done
// before them stays in its destructor until they are, as nobody else watches them. Ending is
// Communicator::Abort with kUnavailable: whoever waits in a collective, or begins one, throws that.
//
// Rank 0 listens on a port that the system chooses; who does not know the job's cookie, which the
// communicator has told all ranks, is not listened to.
//
// Ownership: the communicator outlives it. Threads: Guard and Fail on any.
#ifndef TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_H_
#define TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/distributed/communicator.h"

namespace tidepool::nn {

// When a rank counts as lost. Times beyond a hundred years count as that.
struct HeartbeatConfig {
  std::chrono::milliseconds interval{1000};  // from one sign of life to the next
  // Longer than anything takes that one rank does while others wait: the first step, an evaluation,
  // a checkpoint.
  std::chrono::milliseconds limit{60000};
  // Longer than a connection takes, once all ranks have come, or another's word.
  std::chrono::milliseconds patience{10000};
  // Called once, on the heartbeat's thread, with what the job ends by: for who wants to say it at
  // once, as a launcher may end the process before the error has come up. What it throws is
  // written to stderr.
  std::function<void(const std::string& verdict)> on_verdict;
};

class Heartbeat {
 public:
  // Collective. Throws on all ranks kUnavailable where one cannot reach rank 0; kInvalidArgument
  // for times below 1 ms and a limit below twice the interval.
  explicit Heartbeat(Communicator& communicator, HeartbeatConfig config = {});
  // Tells the others that this rank goes and has not died. On rank 0 it waits until all others have
  // gone, or the job has ended: they may be in collectives to which this rank does not come any
  // more, which is noticed after `limit`. So all ranks end theirs at the same place.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Calls `body`. What it throws leaves here, told to the other ranks, whose collectives end with
  // it; kAborted, which is another rank's fault, is that one's to tell.
  void Guard(absl::FunctionRef<void()> body);
  // The job ends by this rank's error, on all ranks; this one's communicator ends too.
  void Fail(const Error& error);

  // Empty: the job is well.
  std::string verdict() const;

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;  // null: of one rank
  Communicator& communicator_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_H_
