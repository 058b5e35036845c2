// Ranks on clocks of their own, whose messages take what a model of links says: what collectives
// take by cost_model.h is compared with what their code does, without waiting, and with the same
// result on any machine.
//
//   const double seconds = VirtualLinks(64, {20e-6, 800e-12}).Run([](int, Collectives& collectives) {
//     collectives.Run(call);
//   });
//
// A rank is busy with a message that it sends for alpha + beta times its bytes, while others may
// come; who takes a message goes on when it has come. Bytes are not moved: there are none to read
// afterwards. For tests.
#ifndef TIDEPOOL_NN_DISTRIBUTED_VIRTUAL_LINKS_H_
#define TIDEPOOL_NN_DISTRIBUTED_VIRTUAL_LINKS_H_

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/distributed/collectives.h"
#include "tidepool/nn/distributed/cost_model.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

class VirtualLinks {
 public:
  VirtualLinks(int size, const LinkCost& link) : link_(link) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>());
  }

  // Calls `body` on a thread for each rank, all of which begin at 0. Returns the seconds by the
  // clock of the last one to end. `body` throws nothing.
  double Run(absl::FunctionRef<void(int rank, Collectives& collectives)> body) {
    std::vector<std::thread> threads;
    std::vector<double> ends(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        OneRank transport(*this, static_cast<int>(rank));
        Collectives collectives(transport);
        body(static_cast<int>(rank), collectives);
        ends[rank] = transport.now();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return *std::max_element(ends.begin(), ends.end());
  }

 private:
  // What has been sent to a rank: when each message comes, by who sent it.
  struct Rank {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, std::queue<double>> arrivals;  // guarded by mutex
  };

  class OneRank final : public Transport {
   public:
    OneRank(VirtualLinks& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(all_.ranks_.size()); }
    bool Run(const Exchange& exchange) override {
      double end = now_;
      if (exchange.to >= 0) {
        end += all_.link_.alpha + all_.link_.beta * static_cast<double>(exchange.out_bytes);
        Rank& to = *all_.ranks_[static_cast<size_t>(exchange.to)];
        const std::lock_guard<std::mutex> lock(to.mutex);
        to.arrivals[rank_].push(end);
        to.changed.notify_one();
      }
      if (exchange.from >= 0) {
        Rank& me = *all_.ranks_[static_cast<size_t>(rank_)];
        std::unique_lock<std::mutex> lock(me.mutex);
        std::queue<double>& arrivals = me.arrivals[exchange.from];
        me.changed.wait(lock, [&] { return !arrivals.empty(); });
        end = std::max(end, arrivals.front());
        arrivals.pop();
      }
      now_ = end;
      return true;
    }
    void Interrupt() noexcept override {}
    double now() const { return now_; }

   private:
    VirtualLinks& all_;
    const int rank_;
    double now_ = 0;
  };

  const LinkCost link_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_VIRTUAL_LINKS_H_
