// What works, and what is said, when no backend is linked: this test must not depend on one.
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

TEST(NoBackend, CreationMoversAndPrintingWork) {
  const NDArray x = Full({2, 2}, 3);
  EXPECT_EQ(x.Transpose().Dup().ToString(), "[[3., 3.],\n [3., 3.]]");
}

TEST(NoBackend, OperatorsSayWhatIsLinkedAndWhatToAdd) {
  EXPECT_EQ(KernelRegistry::Global().Providers(), std::vector<std::string>{"builtin"});
  NDArray x = Ones({2, 2});
  try {
    MatMul(x, x);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(error.message(),
              "Op [matmul]: no kernel for f32 on host is linked; linked providers: builtin; add "
              "//backends:linked, //backends/cpu or //backends/reference to deps");
  }
  EXPECT_THROW(x *= 2, Error);
  EXPECT_EQ(x.At<float>({1, 1}), 1);
}

}  // namespace
}  // namespace tidepool
