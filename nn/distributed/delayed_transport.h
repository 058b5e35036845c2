// A transport whose messages take as long as those of slower links: for measuring, on one machine,
// what of the communication a job hides behind its computing, and for tests.
//
//   Communicator communicator([&] {
//     return std::make_unique<DelayedTransport>(OpenTransport("mpi"), LinkCost{20e-6, 800e-12});
//   });
//
// Each message that a rank sends is held back by alpha + beta times its bytes, asleep, and then
// sent by the transport below. What sleeping takes longer than it was asked for is made up for by
// the messages behind.
//
// Threads: as Transport.
#ifndef TIDEPOOL_NN_DISTRIBUTED_DELAYED_TRANSPORT_H_
#define TIDEPOOL_NN_DISTRIBUTED_DELAYED_TRANSPORT_H_

#include <condition_variable>
#include <memory>
#include <mutex>

#include "tidepool/nn/distributed/cost_model.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

class DelayedTransport final : public Transport {
 public:
  // Throws kInvalidArgument for a delay that is negative or not finite.
  DelayedTransport(std::unique_ptr<Transport> below, const LinkCost& delay);
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  bool Run(const Exchange& exchange) override;
  void Interrupt() noexcept override;

  // What messages were to be held back by until now, in all. On the communicator's thread.
  double seconds() const { return seconds_; }

 private:
  bool Sleep(double seconds);  // false: interrupted

  const std::unique_ptr<Transport> below_;
  const LinkCost delay_;
  double seconds_ = 0, owed_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool interrupted_ = false;  // guarded by mutex_
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_DELAYED_TRANSPORT_H_
