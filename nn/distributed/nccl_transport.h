// NCCL as a transport: collectives between the memory of CUDA devices, one rank a device.
//
//   auto communicator = Communicator::Open("nccl");    // mpirun -n 8 program; linked: //nn/distributed:nccl and :mpi
//   Network network(config, {.device = communicator->device()});
//
// It is opened over a transport of hosts, by which ranks find each other (the library's unique id), and by which goes what is
// on the host: numbers, texts, barriers. What is on the rank's device goes by NCCL, in a stream of its own: behind what is
// queued to use the elements when the collective is started, beside all that is queued later, and done, for the host to know,
// when it has been waited for.
//
// The library is looked for at run time (backends/cuda/nccl/nccl_library.h). Communicators do not block: the communicator's
// thread polls for the end, for errors that NCCL meets meanwhile (ncclCommGetAsyncError) and for Interrupt(), and ends the
// communicator itself (ncclCommAbort), so that no other thread calls the library.
//
// Sums have the same bits on all ranks; in which order they are added up is NCCL's choice, by its version, the size and the
// machine, and an all-reduce need not have the bits of a reduce-scatter.
//
// Refused, on all ranks alike and before the first collective: no library, one that is too old, or another version than
// rank 0's (each rank says which it has); no device for a rank; two ranks on one device.
#ifndef TIDEPOOL_NN_DISTRIBUTED_NCCL_TRANSPORT_H_
#define TIDEPOOL_NN_DISTRIBUTED_NCCL_TRANSPORT_H_

#include <chrono>
#include <memory>

#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

struct NcclConfig {
  // Its number; -1: as many as there are ranks of lower numbers on this machine, from 0 again where it has fewer devices
  // (of which each process may see another one: CUDA_VISIBLE_DEVICES).
  int device = -1;
  // That ranks may take to come together in NCCL, and to part.
  std::chrono::milliseconds patience{120000};
};

// All ranks of `host`, at the same time. Throws kFailedPrecondition for what is refused, kUnavailable where NCCL fails or
// a rank does not come in time, kInternal where the device fails.
std::unique_ptr<Transport> OpenNccl(std::unique_ptr<Transport> host, const NcclConfig& config = {});

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_NCCL_TRANSPORT_H_
