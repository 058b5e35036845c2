#include "tidepool/backends/cuda/framework/value_fault.h"

#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/value_faults.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

// Of a device, one for each compute queue.
struct Faults {
  MemoryCharge charge, pinned_charge;
  FaultRecord* records = nullptr;
  ToldFault* told = nullptr;
  std::mutex mutex;  // of telling
  std::atomic<uint32_t> launches{0};
};

std::mutex making;
std::atomic<Faults*> faults_of[kMaxDevicesPerType] = {};

Faults* Make(CudaDevice& device) {
  constexpr size_t kRecordBytes = kMostQueues * sizeof(FaultRecord),
                   kToldBytes = kMostQueues * sizeof(ToldFault);
  if (device.capturing()) {
    ThrowFailedPrecondition(
        absl::StrCat(device.name(),
                     ": a graph is being captured before any operator that checks "
                     "values has run; run the step once as it is"));
  }
  auto faults = std::make_unique<Faults>();
  faults->charge = MemoryCharge(MemoryKind::kWorkspace, kRecordBytes, device.device());
  faults->pinned_charge = MemoryCharge(MemoryKind::kWorkspace, kToldBytes, Host());
  std::byte* const records = device.Allocate(kRecordBytes, 256);
  std::byte* const told = records != nullptr ? device.pinned().Allocate(kToldBytes, 64) : nullptr;
  if (told == nullptr) {
    if (records != nullptr) device.Release(records, kRecordBytes);
    device.ThrowIfLost("faults of values");
    ThrowResourceExhausted(absl::StrCat(device.name(), " refused ", kRecordBytes, " bytes, or ",
                                        kToldBytes, " page-locked ones, for faults of values"));
  }
  for (int queue = 0; queue < kMostQueues; ++queue)
    new (told + queue * sizeof(ToldFault)) ToldFault{};
  try {
    device.Fill(records, std::byte{0xff}, kRecordBytes);
  } catch (...) {
    device.pinned().Release(told, kToldBytes);
    device.Release(records, kRecordBytes);
    throw;
  }
  faults->records = reinterpret_cast<FaultRecord*>(records);
  faults->told = reinterpret_cast<ToldFault*>(told);
  return faults.release();
}

Faults& FaultsOf(CudaDevice& device) {
  std::atomic<Faults*>& known = faults_of[device.index()];
  if (Faults* const faults = known.load(std::memory_order_acquire)) return *faults;
  const std::lock_guard<std::mutex> lock(making);
  Faults* faults = known.load(std::memory_order_relaxed);
  if (faults == nullptr) {
    faults = Make(device);
    known.store(faults, std::memory_order_release);
  }
  return *faults;
}

std::string Describe(const ToldFault& fault) {
  const auto op = static_cast<OpCode>(fault.op);
  const std::string who = absl::StrCat("Op [", Info(op).name, "]: ");
  switch (op) {
    case OpCode::kGather:
    case OpCode::kScatterAdd:
    case OpCode::kOneHot:
      return absl::StrCat(who, "index ", fault.found, " at position ", fault.position,
                          fault.limit == 0 ? ", but there is nothing to choose from"
                                           : absl::StrCat(", expected 0 to ", fault.limit - 1));
    case OpCode::kPower:
      return absl::StrCat(who, "Y has a negative element, ", fault.found,
                          "; integers have no negative powers, Cast to a float type");
    default:
      return absl::StrCat(who, "Y has a zero; integer division by zero is not defined");
  }
}

void Tell(CudaDevice& device, Faults& faults, int queue) {
  ToldFault& told = faults.told[queue];
  const std::lock_guard<std::mutex> lock(faults.mutex);
  if (told.raised == 0) return;  // another thread was told
  // A queue that was closed has been waited for.
  const int in = device.compute(queue) != nullptr ? queue : QueueHere(device.device());
  if (device.IsCapturing(in)) return;  // later
  device.Activate();
  QueueTakeFault(&faults.records[queue], &told, device.compute(in));
  Check(cudaStreamSynchronize(device.compute(in)), "cudaStreamSynchronize");
  ThrowInvalidArgument(absl::StrCat(Describe(told), "; found by its kernel on ", device.name(),
                                    " in queue ", queue, ", which left it out"));
}

void ThrowFound(Device which, uint32_t queues) {
  Faults* const faults = faults_of[which.index].load(std::memory_order_acquire);
  if (faults == nullptr) return;
  for (; queues != 0; queues &= queues - 1) {
    const int queue = std::countr_zero(queues);
    if (faults->told[queue].raised != 0) Tell(*CudaDevice::Find(which.index), *faults, queue);
  }
}

const ValueFaultRegistrar registrar(DeviceType::kCuda, &ThrowFound);

}  // namespace

ValueCheck ValueCheckOf(const KernelCall& call, int64_t limit) {
  constexpr uint32_t kTickets =
      (1u << (64 - kPositionBits)) - 1;  // the last one would be kNoFault's
  Faults& faults = FaultsOf(*CudaDevice::Find(call.device.index));
  const uint64_t ticket = faults.launches.fetch_add(1, std::memory_order_relaxed) % kTickets;
  return {&faults.records[call.queue], &faults.told[call.queue].raised, ticket << kPositionBits,
          limit, static_cast<int>(call.op)};
}

}  // namespace tidepool::cuda
