// A library with kernels that is opened while the program computes: calls from then on find them.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/unary.h"

using namespace tidepool;

namespace {

absl::Span<const Kernel> ClipKernels() {
  return KernelRegistry::Find(OpCode::kClip, DeviceType::kHost, DType::kFloat32);
}

TEST(LateClip, IsFoundByTheCallsThatComeAfterIt) {
  const NDArray x = Full({16}, 7);
  EXPECT_EQ(Clip(x, -1, 2).ToVector<float>(), std::vector<float>(16, 2));
  const absl::Span<const Kernel> before = ClipKernels();
  ASSERT_EQ(before.size(), 1u);
  EXPECT_STREQ(before[0].provider, "reference");
  {
    const ScopedProvider provider("quick_clip");
    EXPECT_ANY_THROW(Clip(x, -1, 2));
  }

  const std::string path = std::string(std::getenv("TEST_SRCDIR")) + "/dependent/liblate_clip.so";
  ASSERT_NE(dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  ASSERT_EQ(ClipKernels().size(), 2u);
  EXPECT_STREQ(ClipKernels()[0].provider, "quick_clip");
  EXPECT_STREQ(before[0].provider, "reference");  // what was found stays
  const ScopedProvider provider("quick_clip");
  EXPECT_EQ(Clip(x, -1, 2).ToVector<float>(), std::vector<float>(16, 2));
}

}  // namespace
