// What we declare of NCCL is what its header declares.
#include <gtest/gtest.h>

#include <type_traits>

#include "tidepool/backends/cuda/nccl/nccl_library.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace tidepool::cuda {
namespace {

static_assert(NcclLibrary::kSuccess == ncclSuccess && NcclLibrary::kSystemError == ncclSystemError);
static_assert(NcclLibrary::kInvalidUsage == ncclInvalidUsage);
static_assert(NcclLibrary::kRemoteError == ncclRemoteError);
static_assert(NcclLibrary::kInProgress == ncclInProgress);
static_assert(NcclLibrary::kUint8 == ncclUint8 && NcclLibrary::kSum == ncclSum);
static_assert(NcclLibrary::kFloat32 == ncclFloat32 && NcclLibrary::kFloat64 == ncclFloat64);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig17) <= sizeof(ncclConfig_t));
#define TIDEPOOL_SAME_PLACE(ours, theirs) \
  static_assert(offsetof(NcclConfig17, ours) == offsetof(ncclConfig_t, theirs))
TIDEPOOL_SAME_PLACE(size, size);
TIDEPOOL_SAME_PLACE(magic, magic);
TIDEPOOL_SAME_PLACE(version, version);
TIDEPOOL_SAME_PLACE(blocking, blocking);
TIDEPOOL_SAME_PLACE(cga_cluster_size, cgaClusterSize);
TIDEPOOL_SAME_PLACE(min_ctas, minCTAs);
TIDEPOOL_SAME_PLACE(max_ctas, maxCTAs);
TIDEPOOL_SAME_PLACE(net_name, netName);

// Types that go to a function in the same way: pointers to anything, ints and enumerations, and equal ones.
template <typename Ours, typename Theirs>
constexpr bool kPassesAlike =
    std::is_same_v<Ours, Theirs> || (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) ||
    ((std::is_enum_v<Theirs> || std::is_same_v<Theirs, int>)&&std::is_same_v<Ours, int>) ||
    (std::is_same_v<Ours, NcclUniqueId> && std::is_same_v<Theirs, ncclUniqueId>);

template <typename R, typename... A, typename S, typename... B>
constexpr bool CallsAlike(NcclFunction<R(A...)>, S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return kPassesAlike<R, S> && (kPassesAlike<A, B> && ...);
  }
}
#define TIDEPOOL_CALLS_ALIKE(Name, ...) \
  static_assert(CallsAlike(NcclFunction<__VA_ARGS__>(nullptr), decltype (&::nccl##Name)(nullptr)));
TIDEPOOL_NCCL_FUNCTIONS(TIDEPOOL_CALLS_ALIKE)

TEST(NcclHeader, DeclaresWhatWeDo) {
  // That has been compiled. The initializer shows that the magic number is still that.
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const NcclConfig17 ours;
  EXPECT_EQ(ours.magic, config.magic);
  EXPECT_EQ(ours.cga_cluster_size, config.cgaClusterSize);
  EXPECT_LE(ours.version, config.version);
}

}  // namespace
}  // namespace tidepool::cuda
#else
TEST(NcclHeader, DeclaresWhatWeDo) { GTEST_SKIP() << "no nccl.h beside the toolkit's headers"; }
#endif
