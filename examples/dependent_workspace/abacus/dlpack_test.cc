// Arrays of the abacus given to another library by DLPack and taken back.
#include <vector>

#include "abacus/abacus_device.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace abacus {
namespace {

using namespace tidepool;

const Device kDevice{kAbacus, 0};

TEST(AbacusDLPack, ThereAndBack) {
  NDArray x = Full({1000}, 2, DType::kFloat32, Place::On(kDevice));
  x += 1;
  DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x);
  EXPECT_EQ(tensor->dl_tensor.device.device_type, kDLExtDev);
  EXPECT_EQ(tensor->dl_tensor.data, x.raw_data());
  x.Close();  // the bytes stay
  NDArray y = FromDLPack(tensor);
  EXPECT_EQ(y.device(), kDevice);
  EXPECT_EQ(Add(y, y).ToVector<float>(), std::vector<float>(1000, 6));
  y.Close();
}

TEST(AbacusDLPack, HasNoStreams) {
  const NDArray x = Full({10}, 2, DType::kFloat32, Place::On(kDevice));
  EXPECT_THROW(ToDLPackVersioned(x, {.stream = 1}), Error);
  DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x, {.stream = -1});
  tensor->deleter(tensor);
}

}  // namespace
}  // namespace abacus
