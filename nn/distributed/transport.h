// Transport: what moves bytes between the ranks of a job. Collectives (communicator.h) are made of
// it.
//
// Transports are linked as backends are: a target with a TransportRegistrar in a static
// initialiser, as
// //nn/distributed:mpi (Open MPI), which alwayslink keeps. ThreadRanks (thread_ranks.h) is one
// within a process, for tests. A transport whose library has collectives of its own and moves
// memory of devices (nccl_transport.h) overrides those.
//
// Threads: all but Interrupt() on the one that opened it.
#ifndef TIDEPOOL_NN_DISTRIBUTED_TRANSPORT_H_
#define TIDEPOOL_NN_DISTRIBUTED_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/nn/distributed/collective.h"

namespace tidepool::nn {

class Transport {
 public:
  // Bytes that go to one rank while others come from another; negative ranks: none go, none come.
  struct Exchange {
    int to = -1;
    const void* out = nullptr;
    size_t out_bytes = 0;
    int from = -1;
    void* in = nullptr;
    size_t in_bytes = 0;
    // Of the collective, 0 to kMostTags - 1: what comes with another tag is not this one's.
    int tag = 0;
  };
  static constexpr int kMostTags = 32768;  // what MPI has at least

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns once what came is there and what went may be written over; false: it was interrupted.
  // Throws kDataLoss where other than in_bytes came, kUnavailable where the library says that a
  // rank is gone.
  virtual bool Run(const Exchange& exchange) = 0;

  // The device whose memory RunCollective moves; the host: of none.
  virtual Device device() const { return Host(); }
  // The whole collective by the library's own; kNotMine, of memory of the host alone: as the
  // communicator does it, by exchanges. kDone: what is on a device is there as well.
  enum class Answer { kDone, kInterrupted, kNotMine };
  virtual Answer RunCollective(const CollectiveCall& /*call*/) { return Answer::kNotMine; }

  // Run() under way and to come returns false, soon. Any thread; the transport is of no use
  // afterwards but to be destroyed.
  virtual void Interrupt() noexcept = 0;
};

using TransportFactory = std::unique_ptr<Transport> (*)();

struct TransportRegistrar {
  // `name`: "mpi"; a literal. A name that is registered already ends the program. `by_name_only`:
  // of one that is opened over another, which is what programs get that name none.
  TransportRegistrar(const char* name, TransportFactory factory, bool by_name_only = false);
};

// Sorted.
std::vector<std::string> LinkedTransports();
// Empty: the only one that is linked, but for those by name only. Throws kUnimplemented, naming the target to link, where there
// is none of that name; kInvalidArgument where an empty name could be several.
std::unique_ptr<Transport> OpenTransport(const std::string& name = "");

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_TRANSPORT_H_
