// NCCL, found at run time: programs neither need it nor are built with it.
#ifndef TIDEPOOL_BACKENDS_CUDA_NCCL_NCCL_LIBRARY_H_
#define TIDEPOOL_BACKENDS_CUDA_NCCL_NCCL_LIBRARY_H_

#include <climits>
#include <cstddef>
#include <string>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// What one rank makes and all ranks of a communicator are given.
struct NcclUniqueId {
  char internal[128];
};

// ncclConfig_t as of version 2.17: later libraries know by `version` how far it goes, and take what is behind that as
// not set. Communicators that do not block tell by GetAsyncError when a call is over.
struct NcclConfig17 {
  size_t size = 40;
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = 0;
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  // not set
  const char* net_name = nullptr;
};
static_assert(sizeof(NcclConfig17) == 40);

// The functions that are used, declared by us as nccl.h of version 2 has them (nccl_header_test.cc compares them):
// X(Name, result and parameters). Results, types and operations are the ints that they are.
#define TIDEPOOL_NCCL_FUNCTIONS(X)                                                                 \
  X(GetVersion, int(int* version))                                                                 \
  X(GetErrorString, const char*(int result))                                                       \
  X(GetLastError, const char*(void* comm))                                                         \
  X(GetUniqueId, int(NcclUniqueId * id))                                                           \
  X(CommInitRankConfig, int(void** comm, int ranks, NcclUniqueId id, int rank, NcclConfig17* how)) \
  X(CommGetAsyncError, int(void* comm, int* result))                                               \
  X(CommFinalize, int(void* comm))                                                                 \
  X(CommDestroy, int(void* comm))                                                                  \
  X(CommAbort, int(void* comm))                                                                    \
  X(GroupStart, int())                                                                             \
  X(GroupEnd, int())                                                                               \
  X(AllReduce, int(const void* from, void* to, size_t count, int type, int operation, void* comm,  \
                   cudaStream_t stream))                                                           \
  X(Reduce, int(const void* from, void* to, size_t count, int type, int operation, int root,       \
                void* comm, cudaStream_t stream))                                                  \
  X(Broadcast, int(const void* from, void* to, size_t count, int type, int root, void* comm,       \
                   cudaStream_t stream))                                                           \
  X(AllGather, int(const void* from, void* to, size_t count_of_each, int type, void* comm,         \
                   cudaStream_t stream))                                                           \
  X(ReduceScatter, int(const void* from, void* to, size_t count_of_each, int type, int operation,  \
                       void* comm, cudaStream_t stream))

template <typename Function>
using NcclFunction = Function*;

struct NcclLibrary {
  static constexpr int kSuccess = 0, kSystemError = 2, kInvalidUsage = 5, kRemoteError = 6,
                       kInProgress = 7;
  static constexpr int kUint8 = 1, kFloat32 = 7, kFloat64 = 8;  // types
  static constexpr int kSum = 0;
  static constexpr int kOldest = 21700;  // 2.17.0

#define TIDEPOOL_NCCL_POINTER(Name, ...) NcclFunction<__VA_ARGS__> Name = nullptr;
  TIDEPOOL_NCCL_FUNCTIONS(TIDEPOOL_NCCL_POINTER)
#undef TIDEPOOL_NCCL_POINTER
  int version = 0;  // 22809 is 2.28.9

  // libnccl.so.2 or libnccl.so from where the system looks for libraries; null where there is none that has all the
  // functions, of version 2 from 2.17 on. Looked for once. Threads: any.
  static const NcclLibrary* Find();
  // Why Find() is null, naming what was looked for; else which version it is.
  static std::string Description();
  // "2.28.9".
  static std::string VersionName(int version);
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_NCCL_NCCL_LIBRARY_H_
