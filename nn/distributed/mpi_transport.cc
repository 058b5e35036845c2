// Open MPI as a transport: messages between two ranks; collectives are the communicator's own
// (collectives.h), whose order of sums is fixed and which can be interrupted, neither of which
// MPI's promise.

// The C++ bindings that MPI has given up are not in the library: where nothing is optimised away,
// linking would fail.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/transport.h"

#ifdef __SANITIZE_THREAD__
// Open MPI 4.1's TCP takes two locks of its own in either order within MPI_Init, which one thread
// calls.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() { return "deadlock:mca_btl_tcp.so\n"; }
#endif

namespace tidepool::nn {
namespace {

// MPI's counts are ints.
constexpr size_t kMostBytesAtOnce = size_t{1} << 30;

void Check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(absl::StatusCode::kUnavailable,
              absl::StrCat("distributed: ", call, ": ",
                           absl::string_view(text, static_cast<size_t>(length))));
}

// Waits of another process: at first for as long as a message takes, then ever less often, as ranks
// may share a core.
class Patience {
 public:
  void Wait() {
    ++rounds_;
    if (rounds_ <= 64) return;
    if (rounds_ <= 256) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rounds_ <= 1024 ? 20 : 200));
  }

 private:
  int rounds_ = 0;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int initialized = 0, finalized = 0;
    Check(MPI_Initialized(&initialized), "MPI_Initialized");
    Check(MPI_Finalized(&finalized), "MPI_Finalized");
    if (finalized != 0)
      ThrowFailedPrecondition(
          "distributed: MPI was finalized before, expected one communicator of MPI in a process's "
          "life");
    if (initialized != 0) {
      int level = 0;
      Check(MPI_Query_thread(&level), "MPI_Query_thread");
      if (level < MPI_THREAD_SERIALIZED) {
        ThrowFailedPrecondition(
            "distributed: the program has initialized MPI for one thread, expected "
            "MPI_THREAD_SERIALIZED or more, or that it "
            "leaves that to the communicator");
      }
    } else {
      int level = 0;
      // This thread is the only one that calls MPI.
      Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
      ends_mpi_ = true;
    }
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    Check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    Check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }
  ~MpiTransport() override {
    // Where ranks are gone, finalizing waits for them for ever.
    if (interrupted_) return;
    MPI_Comm_free(&comm_);
    if (ends_mpi_) MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool Run(const Exchange& exchange) override;
  void Interrupt() noexcept override { interrupted_.store(true, std::memory_order_release); }

 private:
  bool RunPiece(const Exchange& exchange);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool ends_mpi_ = false;
  std::atomic<bool> interrupted_{false};
};

bool MpiTransport::Run(const Exchange& exchange) {
  Exchange piece = exchange;
  size_t out_left = exchange.to >= 0 ? exchange.out_bytes : 0,
         in_left = exchange.from >= 0 ? exchange.in_bytes : 0;
  do {
    piece.out_bytes = std::min(out_left, kMostBytesAtOnce);
    piece.in_bytes = std::min(in_left, kMostBytesAtOnce);
    if (!RunPiece(piece)) return false;
    piece.out = static_cast<const char*>(piece.out) + piece.out_bytes;
    piece.in = static_cast<char*>(piece.in) + piece.in_bytes;
    out_left -= piece.out_bytes;
    in_left -= piece.in_bytes;
    if (out_left == 0) piece.to = -1;
    if (in_left == 0) piece.from = -1;
  } while (piece.to >= 0 || piece.from >= 0);
  return true;
}

bool MpiTransport::RunPiece(const Exchange& exchange) {
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  if (exchange.from >= 0) {
    Check(MPI_Irecv(exchange.in, static_cast<int>(exchange.in_bytes), MPI_BYTE, exchange.from,
                    exchange.tag, comm_, &requests[0]),
          "MPI_Irecv");
  }
  if (exchange.to >= 0) {
    Check(MPI_Isend(exchange.out, static_cast<int>(exchange.out_bytes), MPI_BYTE, exchange.to,
                    exchange.tag, comm_, &requests[1]),
          "MPI_Isend");
  }
  Patience patience;
  for (;;) {
    int done = 0;
    MPI_Status statuses[2];
    const int result = MPI_Testall(2, requests, &done, statuses);
    if (result == MPI_ERR_IN_STATUS) {
      for (int i = 0; i < 2; ++i)
        Check(statuses[i].MPI_ERROR == MPI_ERR_PENDING ? MPI_SUCCESS : statuses[i].MPI_ERROR,
              "MPI_Testall");
    } else {
      Check(result, "MPI_Testall");
    }
    if (done != 0) {
      int found = 0;
      if (exchange.from < 0) return true;
      Check(MPI_Get_count(&statuses[0], MPI_BYTE, &found), "MPI_Get_count");
      if (static_cast<size_t>(found) == exchange.in_bytes) return true;
      ThrowDataLoss(absl::StrCat("distributed: rank ", exchange.from, " sent ", found,
                                 " bytes, expected ", exchange.in_bytes));
    }
    // The requests stay: MPI has no way to take back what a rank that is gone should have done.
    if (interrupted_.load(std::memory_order_acquire)) return false;
    patience.Wait();
  }
}

const TransportRegistrar registrar("mpi", []() -> std::unique_ptr<Transport> {
  return std::make_unique<MpiTransport>();
});

}  // namespace
}  // namespace tidepool::nn
