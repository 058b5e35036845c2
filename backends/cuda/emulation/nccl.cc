#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#include "tidepool/backends/cuda/emulation/emulation.h"

namespace tidepool {
namespace {

using cuda_emulation::CallLock;
using cuda_emulation::current_device;
using cuda_emulation::Die;
using cuda_emulation::Emulation;
using cuda_emulation::Mark;

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kRemoteError = 6,
              kInProgress = 7;
constexpr int kUint8 = 1, kFloat32 = 7, kFloat64 = 8, kSum = 0, kMostRanks = 16;

struct UniqueId {
  char internal[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking, rest[3];
  const char* net_name;
};

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };
struct Call {
  Kind kind;
  const char* from;
  char* to;
  size_t count;
  int type, root;
};

size_t BytesOf(int type) { return type == kFloat64 ? 8 : type == kFloat32 ? 4 : 1; }

// A collective, which ranks come to one by one.
struct Meeting {
  std::vector<Call> calls;
  std::vector<std::shared_ptr<Mark>> over;  // by rank
  int arrived = 0;
  bool differs = false, grouped = false;
};

struct Clique {
  int size = 0, joined = 0;
  bool broken = false;
  std::map<long, Meeting> meetings;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  long next = 0;  // meeting
  int polls = 0;  // that are still answered with kInProgress
  bool gone = false, finalized = false;
  std::vector<cuda_emulation::Work> deferred;
};

struct State {  // guarded by the emulation's mutex
  EmulatedNccl kind = EmulatedNccl::kAbsent;
  bool slow = false;
  int async_errors[kMostRanks] = {};
  std::string last_fault;
  EmulatedNcclLibrary::Counters counters;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::vector<std::shared_ptr<Comm>> comms;
  int ids = 0;
};
State& TheState() {
  static State* const state = new State();
  return *state;
}
thread_local int group_depth = 0;

bool Fails(const char* function, FaultPlan& faults = EmulatedNcclLibrary::Get().faults()) {
  if (!faults.Next()) return false;
  TheState().last_fault = function;
  return true;
}

std::shared_ptr<Comm> CommOf(void* comm) {
  for (const std::shared_ptr<Comm>& known : TheState().comms) {
    if (known.get() == comm) return known;
  }
  Die("NCCL: %p is not a communicator", comm);
}

template <typename T>
void Sum(const Meeting& meeting, size_t count, std::vector<char>* out) {
  out->assign(count * sizeof(T), 0);
  T* const sum = reinterpret_cast<T*>(out->data());
  for (const Call& call : meeting.calls) {
    const T* const more = reinterpret_cast<const T*>(call.from);
    for (size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
}

void Do(const Meeting& meeting) {
  const Call& first = meeting.calls[0];
  const size_t ranks = meeting.calls.size(), part = first.count * BytesOf(first.type);
  const bool parts = first.kind == Kind::kReduceScatter;
  std::vector<char> made;
  if (first.kind == Kind::kBroadcast) {
    const char* const from = meeting.calls[static_cast<size_t>(first.root)].from;
    made.assign(from, from + part);
  } else if (first.kind == Kind::kAllGather) {
    for (const Call& call : meeting.calls) made.insert(made.end(), call.from, call.from + part);
  } else {
    const size_t count = first.count * (parts ? ranks : 1);
    first.type == kFloat64 ? Sum<double>(meeting, count, &made) : Sum<float>(meeting, count, &made);
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (first.kind == Kind::kReduce && rank != static_cast<size_t>(first.root)) continue;
    std::memcpy(meeting.calls[rank].to, made.data() + (parts ? rank * part : 0),
                parts ? part : made.size());
  }
}

void Arrive(Comm& comm, long number) {
  const auto at = comm.clique->meetings.find(number);
  if (comm.gone || at == comm.clique->meetings.end()) return;
  Meeting& meeting = at->second;
  if (++meeting.arrived < comm.clique->size || meeting.differs) return;
  Do(meeting);
  ++TheState().counters.collectives;
  if (meeting.grouped) ++TheState().counters.grouped;
  for (const std::shared_ptr<Mark>& over : meeting.over) over->passed = true;
  comm.clique->meetings.erase(at);
}

int Queue(const char* function, void* handle, const Call& call, int operation, cudaStream_t stream,
          bool sums) {
  Emulation& emulation = Emulation::Get();
  CallLock lock(emulation.mutex);
  if (emulation.lost || Fails(function)) return kSystemError;
  const std::shared_ptr<Comm> comm = CommOf(handle);
  Clique& clique = *comm->clique;
  if (comm->finalized || clique.joined < clique.size || (comm->polls > 0 && group_depth == 0)) {
    Die("NCCL: %s while another call is in progress", function);
  }
  if (operation != kSum ||
      (sums ? call.type != kFloat32 && call.type != kFloat64
            : call.type != kUint8 && call.type != kFloat32 && call.type != kFloat64)) {
    return kInvalidArgument;
  }
  const size_t bytes = call.count * BytesOf(call.type), ranks = static_cast<size_t>(clique.size);
  const bool from_parts = call.kind == Kind::kReduceScatter,
             to_parts = call.kind == Kind::kAllGather;
  struct Range {
    const void* at;
    size_t bytes;
  };
  for (const Range& range : {Range{call.from, bytes * (from_parts ? ranks : 1)},
                             Range{call.to, bytes * (to_parts ? ranks : 1)}}) {
    int device = -1;
    if (!emulation.memory.IsDevice(range.at, range.bytes, &device) || device != comm->device) {
      Die("NCCL: %s of %p, %zu bytes: not memory of device %d", function, range.at, range.bytes,
          comm->device);
    }
  }
  CUstream_st* const queue = emulation.Stream(stream);
  if (queue->device != comm->device || queue->capture != nullptr) {
    Die("NCCL: %s in a stream of device %d, or one that is captured, by a communicator of device "
        "%d",
        function, queue->device, comm->device);
  }
  const long number = comm->next++;
  Meeting& meeting = clique.meetings[number];
  if (meeting.calls.empty()) {
    meeting.calls.assign(ranks, call);
    meeting.over.resize(ranks);
    for (auto& over : meeting.over) over = std::make_shared<Mark>(Mark{.is_others = true});
  }
  const Call& other = meeting.calls[0];
  meeting.differs = meeting.differs || other.kind != call.kind || other.count != call.count ||
                    other.type != call.type || other.root != call.root;
  meeting.grouped = group_depth > 0;
  meeting.calls[static_cast<size_t>(comm->rank)] = call;
  const std::shared_ptr<Mark> over = meeting.over[static_cast<size_t>(comm->rank)];
  const auto begin = [&emulation, comm, queue, number, over] {
    emulation.Add(queue, [comm, number] { Arrive(*comm, number); });
    CUevent_st event;
    event.mark = over;
    emulation.Wait(queue, &event);
  };
  if (!TheState().slow) {
    begin();
    return kSuccess;
  }
  comm->deferred.push_back(begin);
  comm->polls = 2;
  return kInProgress;
}

int GetVersion(int* version) {
  *version = TheState().kind == EmulatedNccl::kTooOld ? 2804 : 22809;
  return kSuccess;
}
const char* GetErrorString(int result) {
  return result == kSystemError   ? "unhandled system error"
         : result == kRemoteError ? "remote process exited or there was a network error"
                                  : "another error";
}
const char* GetLastError(void*) { return "as the emulation was told"; }

int GetUniqueId(UniqueId* id) {
  CallLock lock(Emulation::Get().mutex);
  if (Fails("ncclGetUniqueId")) return kSystemError;
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "emulated %d", ++TheState().ids);
  return kSuccess;
}

int CommInitRankConfig(void** made, int ranks, UniqueId id, int rank, Config* config) {
  CallLock lock(Emulation::Get().mutex);
  State& state = TheState();
  if (config->magic != 0xcafebeef || config->size != 40 || config->version != 21700 ||
      config->blocking != 0 || config->rest[0] != INT_MIN) {
    Die("NCCL: a configuration that is none, or of a communicator that blocks");
  }
  std::shared_ptr<Clique>& clique = state.cliques[id.internal];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  if (Fails("ncclCommInitRankConfig")) {
    clique->broken = true;
    return kSystemError;
  }
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks ||
      (clique->size != 0 && clique->size != ranks)) {
    return kInvalidArgument;
  }
  clique->size = ranks;
  ++clique->joined;
  const auto comm = std::make_shared<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = current_device;
  state.comms.push_back(comm);
  ++state.counters.made;
  *made = comm.get();
  return kInProgress;
}

int CommGetAsyncError(void* handle, int* result) {
  Emulation& emulation = Emulation::Get();
  CallLock lock(emulation.mutex);
  if (Fails("ncclCommGetAsyncError", EmulatedNcclLibrary::Get().poll_faults())) return kSystemError;
  const std::shared_ptr<Comm> comm = CommOf(handle);
  const int error = TheState().async_errors[comm->rank];
  const bool joined = comm->clique->joined == comm->clique->size;
  if (error != kSuccess || (!joined && comm->clique->broken)) {
    *result = error != kSuccess ? error : kRemoteError;
    return kSuccess;
  }
  *result = kInProgress;
  if (!joined || (comm->polls > 0 && --comm->polls > 0)) return kSuccess;
  for (const cuda_emulation::Work& begin : std::exchange(comm->deferred, {})) begin();
  *result = kSuccess;
  return kSuccess;
}

int End(const char* function, void* handle, bool aborts) {
  Emulation& emulation = Emulation::Get();
  CallLock lock(emulation.mutex);
  // One that is refused has ended all the same: nobody can say what else would be left of it.
  const bool fails = Fails(function);
  const std::shared_ptr<Comm> comm = CommOf(handle);
  if (group_depth > 0 || (!aborts && (!comm->finalized || comm->polls > 0)))
    Die("NCCL: %s too early", function);
  comm->gone = true;
  // What its own streams wait for is over; the others' wait on.
  for (auto& [number, meeting] : comm->clique->meetings) {
    if (number < comm->next) meeting.over[static_cast<size_t>(comm->rank)]->passed = true;
  }
  if (comm->clique->joined < comm->clique->size) comm->clique->broken = true;
  ++(aborts ? TheState().counters.aborted : TheState().counters.destroyed);
  std::erase(TheState().comms, comm);
  return fails ? kSystemError : kSuccess;
}
int CommAbort(void* comm) { return End("ncclCommAbort", comm, true); }
int CommDestroy(void* comm) { return End("ncclCommDestroy", comm, false); }

int CommFinalize(void* handle) {
  CallLock lock(Emulation::Get().mutex);
  if (Fails("ncclCommFinalize")) return kSystemError;
  const std::shared_ptr<Comm> comm = CommOf(handle);
  comm->finalized = true;
  comm->polls = 2;
  return kInProgress;
}

int GroupStart() {
  CallLock lock(Emulation::Get().mutex);
  if (Fails("ncclGroupStart")) return kSystemError;
  ++group_depth;
  return kSuccess;
}
int GroupEnd() {
  CallLock lock(Emulation::Get().mutex);
  if (group_depth == 0) Die("NCCL: ncclGroupEnd without ncclGroupStart");
  --group_depth;
  if (Fails("ncclGroupEnd")) return kSystemError;
  return TheState().slow ? kInProgress : kSuccess;
}

template <Kind kKind>
Call Made(const void* from, void* to, size_t count, int type, int root = 0) {
  return {kKind, static_cast<const char*>(from), static_cast<char*>(to), count, type, root};
}
int AllReduce(const void* from, void* to, size_t count, int type, int operation, void* comm,
              cudaStream_t stream) {
  return Queue("ncclAllReduce", comm, Made<Kind::kAllReduce>(from, to, count, type), operation,
               stream, true);
}
int Reduce(const void* from, void* to, size_t count, int type, int operation, int root, void* comm,
           cudaStream_t stream) {
  return Queue("ncclReduce", comm, Made<Kind::kReduce>(from, to, count, type, root), operation,
               stream, true);
}
int Broadcast(const void* from, void* to, size_t count, int type, int root, void* comm,
              cudaStream_t stream) {
  return Queue("ncclBroadcast", comm, Made<Kind::kBroadcast>(from, to, count, type, root), kSum,
               stream, false);
}
int AllGather(const void* from, void* to, size_t count, int type, void* comm, cudaStream_t stream) {
  return Queue("ncclAllGather", comm, Made<Kind::kAllGather>(from, to, count, type), kSum, stream,
               false);
}
int ReduceScatter(const void* from, void* to, size_t count, int type, int operation, void* comm,
                  cudaStream_t stream) {
  return Queue("ncclReduceScatter", comm, Made<Kind::kReduceScatter>(from, to, count, type),
               operation, stream, true);
}

}  // namespace

EmulatedNcclLibrary& EmulatedNcclLibrary::Get() {
  static EmulatedNcclLibrary* const emulated = new EmulatedNcclLibrary();
  return *emulated;
}
void EmulatedNcclLibrary::set_kind(EmulatedNccl kind) {
  CallLock lock(Emulation::Get().mutex);
  TheState().kind = kind;
}
void EmulatedNcclLibrary::set_slow(bool slow) {
  CallLock lock(Emulation::Get().mutex);
  TheState().slow = slow;
}
void EmulatedNcclLibrary::set_async_error(int rank, int result) {
  CallLock lock(Emulation::Get().mutex);
  TheState().async_errors[rank] = result;
}
EmulatedNcclLibrary::Counters EmulatedNcclLibrary::counters() const {
  CallLock lock(Emulation::Get().mutex);
  return TheState().counters;
}
std::string EmulatedNcclLibrary::last_fault() const {
  CallLock lock(Emulation::Get().mutex);
  return TheState().last_fault;
}

void* OpenEmulatedNccl(const char* name) {
  const bool is_there =
      TheState().kind != EmulatedNccl::kAbsent && std::strcmp(name, "libnccl.so.2") == 0;
  return is_there ? &TheState() : nullptr;  // of any address
}

void* EmulatedNcclSymbol(const char* name) {
  // Older ones lack it too, and say so by their version.
  const EmulatedNccl kind = TheState().kind;
  if ((kind == EmulatedNccl::kIncomplete || kind == EmulatedNccl::kTooOld) &&
      std::strcmp(name, "ncclCommFinalize") == 0) {
    return nullptr;
  }
// clang-format writes this list in another way each time.
// clang-format off
#define TIDEPOOL_NAMES(X)                                                                       \
  X(GetVersion) X(GetErrorString) X(GetLastError) X(GetUniqueId) X(CommInitRankConfig)          \
  X(CommGetAsyncError) X(CommFinalize) X(CommDestroy) X(CommAbort) X(GroupStart) X(GroupEnd)    \
  X(AllReduce) X(Reduce) X(Broadcast) X(AllGather) X(ReduceScatter)
// clang-format on
#define TIDEPOOL_SYMBOL(Name) \
  if (std::strcmp(name, "nccl" #Name) == 0) return reinterpret_cast<void*>(&Name);
  TIDEPOOL_NAMES(TIDEPOOL_SYMBOL)
#undef TIDEPOOL_SYMBOL
  return nullptr;
}

}  // namespace tidepool
