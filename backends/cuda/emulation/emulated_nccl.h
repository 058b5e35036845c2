// An emulated NCCL, looked up by name as the library is: collectives of ranks that are threads of one process, each with an
// emulated device of its own.
//
//   - Communicators must not block (config.blocking = 0): that is how the library is used here.
//   - A collective is work in each rank's stream, which waits there for all others: it is done by who comes last, so the order
//     is that of streams and events alone. Ranks that call different ones wait for ever, as they may with the library.
//   - Sums are added up in the ranks' order.
//   - Wrong arguments, memory of other devices, calls while one is in progress, and communicators that have gone end the program.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NCCL_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NCCL_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/testing/fault_plan.h"

namespace tidepool {

enum class EmulatedNccl {
  kAbsent,  // at first
  kPresent,
  kIncomplete,  // lacks a function
  kTooOld,      // version 2.8.4
};

class EmulatedNcclLibrary {
 public:
  struct Counters {
    int64_t made = 0, destroyed = 0, aborted = 0;  // communicators
    int64_t collectives = 0;                       // done, counted once for all ranks
    int64_t grouped = 0;                           // of them, between GroupStart and GroupEnd
  };
  static EmulatedNcclLibrary& Get();

  // Before it is looked for.
  void set_kind(EmulatedNccl kind);
  // Calls are answered with ncclInProgress and queued some polls later; false at first.
  void set_slow(bool slow);
  // Of that rank, from its next poll on: a result, 0 for none.
  void set_async_error(int rank, int result);
  Counters counters() const;
  // Of calls that have a result, but for ncclGetVersion, and for ncclCommGetAsyncError: how often that is called hangs on
  // the threads' turns.
  FaultPlan& faults() { return faults_; }
  FaultPlan& poll_faults() { return poll_faults_; }
  std::string last_fault() const;  // the function's name

 private:
  FaultPlan faults_, poll_faults_;
};

// As dlopen and dlsym.
void* OpenEmulatedNccl(const char* name);
void* EmulatedNcclSymbol(const char* name);

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_NCCL_H_
