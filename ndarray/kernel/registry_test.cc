#include "tidepool/ndarray/kernel/registry.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void Nothing(const KernelCall&) {}

const KernelRegistrar registrar({
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "second", 5, &Nothing},
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "third", -1, &Nothing},
    {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "first", 30, &Nothing},
});

std::string MessageOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Registry, TableListsProvidersInTheOrderTheyAreTried) {
  const std::string table = KernelRegistry::Global().Table();
  EXPECT_THAT(table,
              HasSubstr("relu                         host       f32   first, second, third\n"));
  EXPECT_THAT(table, HasSubstr("matmul                       host       f32   - (none linked)\n"));
  EXPECT_THAT(KernelRegistry::Global().Providers(), ElementsAre("first", "second", "third"));
}

TEST(Registry, NotesAreAskedForWhenShown) {
  static int asked = 0;
  KernelRegistry::Global().AddNote("second", [] { return "asked " + std::to_string(++asked); });
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(KernelRegistry::Global().Notes(), "second: asked 1\n");
}

TEST(Registry, ASecondKernelOfOneProviderEndsTheProgram) {
  EXPECT_DEATH(KernelRegistry::Global().Add(
                   {OpCode::kRelu, DeviceType::kHost, DType::kFloat32, "second", 9, &Nothing}),
               "two kernels for \\[relu\\] on host, f32 are linked by provider \"second\"");
}

TEST(Registry, OperandNames) {
  EXPECT_EQ(OperandName("X,Y,bias?", 2), "bias");
  EXPECT_EQ(OperandName("logits,labels:i64", 1), "labels");
  EXPECT_EQ(OperandName("X", 1), "extra");
  EXPECT_TRUE(Info(OpCode::kAdd).in_place());
  EXPECT_TRUE(Info(OpCode::kAdamUpdate).updates());
  EXPECT_FALSE(Info(OpCode::kMatMul).in_place() || Info(OpCode::kMatMul).updates());
}

TEST(Registry, ThreadCount) {
  const int before = ThreadCount();
  EXPECT_GE(before, 1);
  SetThreadCount(3);
  EXPECT_EQ(ThreadCount(), 3);
  SetThreadCount(before);
  EXPECT_EQ(MessageOf([] { SetThreadCount(0); }, absl::StatusCode::kInvalidArgument),
            "thread count is 0, expected 1 to 1024");
}

TEST(Registry, ScopedProvidersNest) {
  EXPECT_EQ(ScopedProvider::Current(), nullptr);
  {
    ScopedProvider outer("first");
    {
      ScopedProvider any(nullptr);
      EXPECT_EQ(ScopedProvider::Current(), nullptr);
    }
    EXPECT_STREQ(ScopedProvider::Current(), "first");
  }
  EXPECT_EQ(ScopedProvider::Current(), nullptr);
}

}  // namespace
}  // namespace tidepool
