// The code of docs/mirroring.md: each part between two lines "// [name]" stands there.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

// [places]
TEST(Mirroring, ArraysOnDevices) {
  NDArray x = Arange(0, 4, 1, DType::kFloat32, Place::On(kDevice));  // the device's heap
  NDArray y = Ones({4}).To(kDevice);                                 // a copy there
  NDArray sum = Add(x, y);                                           // where its operands are
  EXPECT_EQ(sum.device(), kDevice);
  EXPECT_EQ(sum.At<float>({3}), 4);               // copies one element
  EXPECT_EQ(sum.To(Host()).data<float>()[2], 3);  // copies the array
}
// [places]

// [views]
TEST(Mirroring, Views) {
  NDArray x = Zeros({1000}, DType::kFloat32, Place::On(kDevice));
  NDArray head = x.Slice(0, 0, 10);
  {
    HostView<float> view(head);  // fetches 40 bytes
    for (float& value : view) value = 7;
    EXPECT_THROW(x += 1, Error);  // would miss what the view writes
  }                               // 40 bytes are stale on the device
  x += 1;                         // sends 40 bytes, then computes
  HostView<const float> all(x);   // fetches the rest, which the device has written
  EXPECT_EQ(all[9], 8);
  EXPECT_EQ(all[999], 1);
}
// [views]

// [overwrite]
TEST(Mirroring, NewContentsAreNotFetched) {
  Workspace workspace("batches", {}, kDevice);
  WorkspaceScope scope(workspace);
  NDArray batch = Empty({256});  // nobody has written it
  float* values = batch.mutable_data<float>();
  for (int i = 0; i < 256; ++i) values[i] = 1;
  batch *= 2;  // sends 1 KiB
  {
    HostView<float> view(batch, ViewContents::kOverwritten);
    for (float& value : view) value = 3;
  }
  batch *= 2;  // again
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(stats.mirror_bytes_to_device, 2048);
  EXPECT_EQ(stats.mirror_copies_to_host, 0);
}
// [overwrite]

// [policies]
TEST(Mirroring, Policies) {
  WorkspaceConfig config;
  config.policy_mirroring = MirroringPolicy::kDisabled;
  Workspace device_only("device only", config, kDevice);
  {
    WorkspaceScope scope(device_only);
    NDArray x = Ones({3});
    EXPECT_THROW(x.data<float>(), Error);  // no host copy
    EXPECT_EQ(x.ToVector<float>()[0], 1);  // a copy of the caller's is another matter
  }
  config.policy_mirroring = MirroringPolicy::kHostOnly;
  Workspace host_only("host only", config, kDevice);
  WorkspaceScope scope(host_only);
  EXPECT_EQ(Ones({3}).device(), Host());
}
// [policies]

// [small]
TEST(Mirroring, SmallOperatorsStayWhereTheirDataIs) {
  WorkspaceConfig config;
  config.helper_min_size = 4096;
  Workspace workspace("w", config, kDevice);
  WorkspaceScope scope(workspace);
  NDArray x = Empty({8});
  x.mutable_data<float>()[0] = 1;  // on the host now
  x += 1;                          // smaller than 4096 bytes: there
  EXPECT_EQ(x.data<float>()[0], 2);
  EXPECT_EQ(workspace.stats().mirror_copies_to_device, 0);
}
// [small]

}  // namespace
}  // namespace tidepool
