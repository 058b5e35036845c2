#include "tidepool/nn/distributed/nccl_transport.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/backends/cuda/nccl/nccl_library.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/collectives.h"

namespace tidepool::nn {
namespace {

using cuda::CudaDevice;
using cuda::NcclLibrary;
using Clock = std::chrono::steady_clock;

constexpr char kName[] = "distributed: NCCL";

// What ranks tell each other before there is a communicator of NCCL's.
struct Introduction {
  char machine[64] = "", bus[32] = "";
  int version = 0;
  char refusal[400] = "";
};

template <size_t kBytes>
void Write(const std::string& text, char (&to)[kBytes]) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

// The same for all processes of a machine, in containers too.
std::string Machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::vector<Introduction> Introduce(Collectives& collectives, Transport& host,
                                    const Introduction& mine) {
  std::vector<Introduction> all(static_cast<size_t>(host.size()));
  all[static_cast<size_t>(host.rank())] = mine;
  // A part is a rank's.
  if (!collectives.Run({CollectiveKind::kAllGather,
                        absl::MakeSpan(reinterpret_cast<std::byte*>(all.data()),
                                       all.size() * sizeof(Introduction)),
                        0, "introductions", 0})) {
    throw Error(absl::StatusCode::kAborted, absl::StrCat(kName, ": interrupted"));
  }
  return all;
}

// Waits of a device: at first for as long as a small sum takes.
class Patience {
 public:
  void Wait() {
    if (++rounds_ <= 256) return;
    if (rounds_ <= 1024) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  int rounds_ = 0;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::unique_ptr<Transport> host, const NcclConfig& config);
  ~NcclTransport() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Device device() const override { return device_->device(); }
  bool Run(const Exchange& exchange) override { return host_->Run(exchange); }
  Answer RunCollective(const CollectiveCall& call) override;
  void Interrupt() noexcept override {
    interrupted_.store(true, std::memory_order_release);
    host_->Interrupt();
  }

 private:
  void ChooseDevice(const std::vector<Introduction>& all, Introduction* mine);
  void CheckIntroductions(const std::vector<Introduction>& all) const;
  cuda::NcclUniqueId ShareId(Collectives& collectives);
  void Join(const cuda::NcclUniqueId& id);
  void Queue(const CollectiveCall& call);
  // Of a sum or a gathering whose parts are not of one length.
  void QueueParts(const CollectiveCall& call, int type);
  // Until the communicator has done what it was asked. False: interrupted.
  bool Settle(const char* what, std::optional<Clock::time_point> until = std::nullopt);
  int AsyncResult();
  void Check(int result, const char* call);
  [[noreturn]] void Throw(int result, const char* call);
  void Abort() noexcept;
  void End() noexcept;

  const std::unique_ptr<Transport> host_;
  const NcclConfig config_;
  const NcclLibrary* library_ = nullptr;
  CudaDevice* device_ = nullptr;
  void* comm_ = nullptr;  // null: not yet, or aborted
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> interrupted_{false};
};

NcclTransport::NcclTransport(std::unique_ptr<Transport> host, const NcclConfig& config)
    : host_(std::move(host)), config_(config), library_(NcclLibrary::Find()) {
  Collectives collectives(*host_);
  Introduction mine;
  Write(Machine(), mine.machine);
  if (library_ == nullptr) {
    Write(NcclLibrary::Description(), mine.refusal);
  } else {
    mine.version = library_->version;
  }
  try {
    // Whatever one rank lacks is said before others wait for it in NCCL.
    ChooseDevice(Introduce(collectives, *host_, mine), &mine);
    CheckIntroductions(Introduce(collectives, *host_, mine));
    Join(ShareId(collectives));
  } catch (...) {
    End();
    throw;
  }
}

NcclTransport::~NcclTransport() {
  try {
    device_->Activate();
    if (comm_ != nullptr && !interrupted_.load(std::memory_order_acquire)) {
      Check(library_->CommFinalize(comm_), "ncclCommFinalize");
      if (Settle("ncclCommFinalize", Clock::now() + config_.patience))
        Check(library_->CommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
    }
  } catch (...) {  // ended below, and nobody is told: what was asked for is done
  }
  End();
}

void NcclTransport::End() noexcept {
  Abort();
  if (stream_ != nullptr) cuda::ForgetLastError(cudaStreamDestroy(stream_));
}

void NcclTransport::ChooseDevice(const std::vector<Introduction>& all, Introduction* mine) {
  int before = 0;  // ranks on this machine
  for (int rank = 0; rank < host_->rank(); ++rank) {
    before += std::strcmp(all[static_cast<size_t>(rank)].machine, mine->machine) == 0 ? 1 : 0;
  }
  if (mine->refusal[0] != '\0') return;
  try {
    const int count = CudaDevice::Count();
    if (count == 0) {
      return Write(absl::StrCat("found no CUDA device (", CudaDevice::WhyAbsent(), ")"),
                   mine->refusal);
    }
    const int index = config_.device >= 0 ? config_.device : before % count;
    device_ = CudaDevice::Find(index);
    if (device_ == nullptr) {
      return Write(absl::StrCat("found ", count, " CUDA devices, expected one of number ", index),
                   mine->refusal);
    }
    cuda::Check(cudaDeviceGetPCIBusId(mine->bus, sizeof(mine->bus), index),
                "cudaDeviceGetPCIBusId");
    device_->Activate();
    cuda::Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
  } catch (const std::exception& error) {
    Write(error.what(), mine->refusal);
  }
}

void NcclTransport::CheckIntroductions(const std::vector<Introduction>& all) const {
  const auto refuse = [&](const std::string& why) {
    ThrowFailedPrecondition(absl::StrCat(kName, ": ", why));
  };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].refusal[0] != '\0') refuse(absl::StrCat("rank ", rank, ": ", all[rank].refusal));
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Introduction& one = all[rank];
    if (one.version != all[0].version) {
      refuse(absl::StrCat("rank ", rank, " has version ", NcclLibrary::VersionName(one.version),
                          ", expected ", NcclLibrary::VersionName(all[0].version),
                          ", as rank 0 has"));
    }
    for (size_t other = 0; other < rank; ++other) {
      if (std::strcmp(one.machine, all[other].machine) != 0 ||
          std::strcmp(one.bus, all[other].bus) != 0) {
        continue;
      }
      refuse(absl::StrCat("ranks ", other, " and ", rank, " are both on device ", one.bus,
                          " of a machine, expected a device for each rank"));
    }
  }
}

cuda::NcclUniqueId NcclTransport::ShareId(Collectives& collectives) {
  struct {
    cuda::NcclUniqueId id;
    char refusal[400] = "";
  } shared = {};
  if (host_->rank() == 0) {
    try {
      device_->Activate();
      Check(library_->GetUniqueId(&shared.id), "ncclGetUniqueId");
    } catch (const std::exception& error) {
      Write(error.what(), shared.refusal);
    }
  }
  if (!collectives.Run({CollectiveKind::kBroadcast,
                        absl::MakeSpan(reinterpret_cast<std::byte*>(&shared), sizeof(shared)), 0,
                        "id", 0})) {
    throw Error(absl::StatusCode::kAborted, absl::StrCat(kName, ": interrupted"));
  }
  if (shared.refusal[0] != '\0') throw Error(absl::StatusCode::kUnavailable, shared.refusal);
  return shared.id;
}

void NcclTransport::Join(const cuda::NcclUniqueId& id) {
  cuda::NcclConfig17 how;
  Check(library_->CommInitRankConfig(&comm_, size(), id, rank(), &how), "ncclCommInitRankConfig");
  if (!Settle("ncclCommInitRankConfig", Clock::now() + config_.patience))
    throw Error(absl::StatusCode::kAborted, absl::StrCat(kName, ": interrupted"));
}

void NcclTransport::Throw(int result, const char* call) {
  std::string text =
      absl::StrCat(kName, ": rank ", rank(), ": ", call, ": ", library_->GetErrorString(result));
  // What went wrong last, in the library's words.
  const char* const last = library_->GetLastError(comm_);
  if (last != nullptr && last[0] != '\0') absl::StrAppend(&text, " (", last, ")");
  cuda::ThrowIfCurrentIsLost(call);
  throw Error(absl::StatusCode::kUnavailable, text);
}

void NcclTransport::Check(int result, const char* call) {
  if (result == NcclLibrary::kSuccess || result == NcclLibrary::kInProgress) return;
  Throw(result, call);
}

int NcclTransport::AsyncResult() {
  int result = NcclLibrary::kSuccess;
  Check(library_->CommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
  return result;
}

bool NcclTransport::Settle(const char* what, std::optional<Clock::time_point> until) {
  Patience patience;
  for (;;) {
    const int result = AsyncResult();
    if (result == NcclLibrary::kSuccess) return true;
    Check(result, what);
    if (interrupted_.load(std::memory_order_acquire)) return false;
    if (until.has_value() && Clock::now() > *until) {
      throw Error(absl::StatusCode::kUnavailable,
                  absl::StrCat(kName, ": rank ", rank(), ": ", what, " has not ended within ",
                               config_.patience.count(), " ms: not all ranks have come to it"));
    }
    patience.Wait();
  }
}

// The bytes are the caller's again when it returns: kernels under way end by it.
void NcclTransport::Abort() noexcept {
  if (comm_ == nullptr) return;
  library_->CommAbort(std::exchange(comm_, nullptr));
  cuda::ForgetLastError(cudaStreamSynchronize(stream_));
}

Transport::Answer NcclTransport::RunCollective(const CollectiveCall& call) {
  if (call.elements.device == Host() || call.kind == CollectiveKind::kBarrier)
    return Answer::kNotMine;
  if (comm_ == nullptr) {
    ThrowFailedPrecondition(absl::StrCat(kName, ": rank ", rank(), ": ",
                                         CollectiveKindName(call.kind), " [", call.site,
                                         "] by a communicator that has failed"));
  }
  if (call.elements.count == 0) return Answer::kDone;
  try {
    device_->Activate();
    device_->points().StreamWait(stream_, call.elements.after);
    Queue(call);
    if (!Settle(CollectiveKindName(call.kind))) {
      Abort();
      return Answer::kInterrupted;
    }
    const QueuePoint end = device_->points().Record(stream_);
    Patience patience;
    while (!device_->points().HasPassed(end)) {
      Check(AsyncResult(), CollectiveKindName(call.kind));
      if (interrupted_.load(std::memory_order_acquire)) {
        Abort();
        return Answer::kInterrupted;
      }
      patience.Wait();
    }
  } catch (...) {
    Abort();
    throw;
  }
  return Answer::kDone;
}

void NcclTransport::Queue(const CollectiveCall& call) {
  const Elements& elements = call.elements;
  const auto count = static_cast<size_t>(elements.count);
  const int type = elements.type == ElementType::kFloat32   ? NcclLibrary::kFloat32
                   : elements.type == ElementType::kFloat64 ? NcclLibrary::kFloat64
                                                            : NcclLibrary::kUint8;
  void* const data = elements.data;
  const bool even = elements.count % size() == 0;
  const size_t of_each = count / static_cast<size_t>(size());
  void* const mine = elements.at(PartOf(elements.count, rank(), size()).first);
  switch (call.kind) {
    case CollectiveKind::kBroadcast:
      return Check(library_->Broadcast(data, data, count, type, call.root, comm_, stream_),
                   "ncclBroadcast");
    case CollectiveKind::kAllReduce:
      return Check(library_->AllReduce(data, data, count, type, NcclLibrary::kSum, comm_, stream_),
                   "ncclAllReduce");
    case CollectiveKind::kReduceScatter:
      if (!even) break;
      return Check(
          library_->ReduceScatter(data, mine, of_each, type, NcclLibrary::kSum, comm_, stream_),
          "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      if (!even) break;
      return Check(library_->AllGather(mine, data, of_each, type, comm_, stream_), "ncclAllGather");
    case CollectiveKind::kBarrier:
      return;
  }
  QueueParts(call, type);
}

void NcclTransport::QueueParts(const CollectiveCall& call, int type) {
  Check(library_->GroupStart(), "ncclGroupStart");
  int failed = NcclLibrary::kSuccess;
  const char* const name = call.kind == CollectiveKind::kAllGather ? "ncclBroadcast" : "ncclReduce";
  for (int part = 0;
       part < size() && (failed == NcclLibrary::kSuccess || failed == NcclLibrary::kInProgress);
       ++part) {
    const auto [begin, end] = PartOf(call.elements.count, part, size());
    void* const at = call.elements.at(begin);
    const auto count = static_cast<size_t>(end - begin);
    if (count == 0) continue;
    failed = call.kind == CollectiveKind::kAllGather
                 ? library_->Broadcast(at, at, count, type, part, comm_, stream_)
                 : library_->Reduce(at, at, count, type, NcclLibrary::kSum, part, comm_, stream_);
  }
  // A group that was begun ends, whatever came of it: the thread's next calls are of no group.
  const int ended = library_->GroupEnd();
  Check(failed, name);
  Check(ended, "ncclGroupEnd");
}

const TransportRegistrar registrar(
    "nccl", []() -> std::unique_ptr<Transport> { return OpenNccl(OpenTransport("mpi")); },
    /*by_name_only=*/true);

}  // namespace

std::unique_ptr<Transport> OpenNccl(std::unique_ptr<Transport> host, const NcclConfig& config) {
  return std::make_unique<NcclTransport>(std::move(host), config);
}

}  // namespace tidepool::nn
