// Ranks that are threads of one process: the transport by which collectives and what is made of
// them are tested without MPI.
//
//   ThreadRanks ranks(4);
//   // On four threads, each with its rank's communicator.
//   ranks.Run([](Communicator& communicator) { ... });
#ifndef TIDEPOOL_NN_DISTRIBUTED_THREAD_RANKS_H_
#define TIDEPOOL_NN_DISTRIBUTED_THREAD_RANKS_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

class ThreadRanks {
 public:
  explicit ThreadRanks(int size);

  // For Communicator's constructor. This outlives it.
  std::unique_ptr<Transport> Open(int rank);

  // Calls `body` on a thread for each rank and returns when all have ended. What the first rank to
  // fail threw ends the others' communicators, and is thrown here.
  void Run(absl::FunctionRef<void(Communicator&)> body);

 private:
  class OneRank;
  struct Mail {
    const void* data = nullptr;
    size_t bytes = 0;
    int tag = 0;
    bool is_there = false;
  };
  Mail& From(int from, int to) { return mail_[static_cast<size_t>(from * size_ + to)]; }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mail> mail_;  // from each to each; guarded by mutex_
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_THREAD_RANKS_H_
