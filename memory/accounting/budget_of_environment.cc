// A budget from the environment, and amounts as text. Run with several values of the variable.
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_limits.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

const std::string& Text() {
  static const std::string text = std::getenv("TIDEPOOL_MEMORY_BUDGET");
  return text;
}
bool IsList() { return Text().find(',') != std::string::npos; }

TEST(BudgetOfEnvironment, HoldsOfDevicesAndOwners) {
  if (!IsList()) GTEST_SKIP() << "of another variant";
  const Device device{DeviceType::Named("simulated"), 1};
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& loader = MemoryOwner::Process().Child("loader");
  MemoryOwner& first = loader.Child("first");
  EXPECT_TRUE(budget.limited());
  EXPECT_EQ(budget.process().limit_bytes, 64 << 20);
  EXPECT_EQ(budget.process().soft_limit_bytes, 48 << 20);
  EXPECT_EQ(budget.Of(Host()).limit_bytes, 32 << 20);
  EXPECT_EQ(budget.Of(Host()).soft_limit_bytes, MemoryBudget::kUnlimited);
  EXPECT_EQ(budget.Of(device).limit_bytes, 4 << 20);
  EXPECT_EQ(budget.Of(loader, Host()).soft_limit_bytes, 6 << 20);
  EXPECT_EQ(budget.Of(loader, Host()).limit_bytes, MemoryBudget::kUnlimited);
  EXPECT_EQ(budget.Of(first, device).limit_bytes, 1 << 20);
  EXPECT_EQ(budget.TryReserve(device, first, (1 << 20) + 1), 1);
  EXPECT_EQ(budget.TryReserve(device, loader, (4 << 20) + 7), 7);
  EXPECT_EQ(budget.TryReserve(Host(), first, (32 << 20) + 3), 3);
  // The soft one asks and grants.
  budget.Reserve(Host(), first, 8 << 20, "a test");
  budget.Release(Host(), first, 8 << 20);
  // Each may be lifted by the program.
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
  budget.SetProcessSoftLimit(MemoryBudget::kUnlimited);
  budget.SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  budget.SetDeviceLimit(device, MemoryBudget::kUnlimited);
  budget.SetOwnerSoftLimit(loader, Host(), MemoryBudget::kUnlimited);
  EXPECT_TRUE(budget.limited());
  budget.SetOwnerLimit(first, device, MemoryBudget::kUnlimited);
  EXPECT_FALSE(budget.limited());
  SetMemoryLimits(MemoryLimitsOfText("flag --memory_limits", "1GiB, soft owner loader=2MiB"));
  EXPECT_EQ(budget.process().limit_bytes, 1 << 30);
  EXPECT_EQ(budget.Of(loader, Host()).soft_limit_bytes, 2 << 20);
}

TEST(MemoryLimits, AsPeopleWriteThem) {
  using Of = MemoryLimit::Of;
  const Device cuda{DeviceType::Named("cuda"), 3};
  const auto limits = [](const char* text) { return MemoryLimitsOfText("flag --limits", text); };
  EXPECT_EQ(limits("  "), std::vector<MemoryLimit>());
  EXPECT_EQ(limits("2GiB"), std::vector<MemoryLimit>({{.bytes = int64_t{2} << 30}}));
  EXPECT_EQ(limits("process=2GiB"), limits("2GiB"));
  EXPECT_EQ(limits("npu_of_nobody:1=1")[0].device.index, 1);
  EXPECT_EQ(limits(" soft\t5 MiB ,1"),
            std::vector<MemoryLimit>({{.is_soft = true, .bytes = 5 << 20}, {.bytes = 1}}));
  EXPECT_EQ(limits("cuda=1KiB,cuda:3 = 2KiB , soft host=3KiB"),
            std::vector<MemoryLimit>({{Of::kDevice, false, {cuda.type, 0}, "", 1024},
                                      {Of::kDevice, false, cuda, "", 2048},
                                      {Of::kDevice, true, Host(), "", 3072}}));
  EXPECT_EQ(limits("owner a/b c on cuda:3=7, soft owner work on paper=8"),
            std::vector<MemoryLimit>({{Of::kOwner, false, cuda, "a/b c", 7},
                                      {Of::kOwner, true, Host(), "work on paper", 8}}));
  EXPECT_EQ(limits("host=100%")[0].bytes, MachineMemoryBytes());
  const auto refusal = [&](const char* text) {
    return std::string(CatchStatus([&] { limits(text); }).message());
  };
  EXPECT_THAT(refusal("much"), HasSubstr("flag --limits is \"much\", expected bytes"));
  EXPECT_THAT(refusal("1GiB,"), HasSubstr("flag --limits is \"\", expected bytes"));
  EXPECT_THAT(refusal("cuda:0=much"),
              HasSubstr("flag --limits: the limit of cuda:0 is \"much\", expected bytes"));
  for (const char* const text : {"=1", "cuda:16=1", "cuda:-1=1", "cuda:=1", "cuda:x=1", "Cuda=1",
                                 "owner=1", "loader=1", "loader/x=1", "pro cess=1"}) {
    EXPECT_THAT(refusal(text), HasSubstr("expected a device (host, cuda:0 to 15, ...), process or"))
        << text;
  }
  for (const char* const text : {"owner /=1", "owner a//b=1", "owner a/=1"})
    EXPECT_THAT(refusal(text), HasSubstr("expected names with / between them")) << text;
  EXPECT_THAT(refusal("cuda:3=50%"), HasSubstr("found a share of cuda:3, expected bytes"));
  EXPECT_THAT(refusal("owner a on cuda:3=50%"), HasSubstr("found a share of cuda:3"));
  EXPECT_THAT(
      refusal("1GiB, soft 1GiB, 2GiB"),
      HasSubstr("flag --limits: found a second limit, \"2GiB\", of the same, expected one"));
  EXPECT_THAT(refusal("owner a=1,owner a on host=2"), HasSubstr("a second limit"));
}

TEST(BudgetOfEnvironment, HoldsFromTheFirstByteOn) {
  if (IsList()) GTEST_SKIP() << "of another variant";
  const std::string& text = Text();
  if (text == "much") {
    for (int i = 0; i < 2; ++i) {
      try {
        MemoryBudget::Global();
        ADD_FAILURE() << "a program that was to have a limit must not run without one";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr("TIDEPOOL_MEMORY_BUDGET is \"much\", expected"));
      }
    }
    return;
  }
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("budgeted");
  EXPECT_EQ(budget.limited(), !text.empty());
  if (text.empty()) {
    EXPECT_EQ(budget.process().limit_bytes, MemoryBudget::kUnlimited);
    return;
  }
  const int64_t limit = text == "48MiB" ? int64_t{48} << 20 : MachineMemoryBytes() / 200;
  EXPECT_NEAR(static_cast<double>(budget.process().limit_bytes), static_cast<double>(limit), 1);
  const int64_t exact = budget.process().limit_bytes;
  EXPECT_EQ(budget.TryReserve(Host(), owner, exact), 0);
  EXPECT_EQ(budget.TryReserve(Host(), owner, 10), 10);
  budget.Release(Host(), owner, exact);
  // It may be lifted by the program.
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
  EXPECT_FALSE(budget.limited());
  EXPECT_EQ(budget.TryReserve(Host(), owner, exact + 10), 0);
  budget.Release(Host(), owner, exact + 10);
}

TEST(BytesOfText, AsPeopleWriteThem) {
  const auto bytes = [](const char* text) { return BytesOfText("flag --budget", text); };
  EXPECT_EQ(bytes("1"), 1);
  EXPECT_EQ(bytes("67108864"), 67108864);
  EXPECT_EQ(bytes("281474976710656"), int64_t{1} << 48);
  EXPECT_EQ(bytes("64KiB"), 65536);
  EXPECT_EQ(bytes("64MiB"), int64_t{64} << 20);
  EXPECT_EQ(bytes("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(bytes("0.25TiB"), int64_t{1} << 38);
  EXPECT_EQ(bytes("100%"), MachineMemoryBytes());
  EXPECT_EQ(bytes("5 MiB"), int64_t{5} << 20);
  EXPECT_EQ(bytes("1.5 \t GiB"), int64_t{3} << 29);
  EXPECT_EQ(bytes("100 %"), MachineMemoryBytes());
  EXPECT_NEAR(static_cast<double>(bytes("25%")), static_cast<double>(MachineMemoryBytes()) / 4, 1);
  for (const char* const text : {"",        "0",
                                 "-1",      "+1",
                                 "1e9",     "0x10",
                                 " 1",      "1 ",
                                 "1.5",     "1.2.3MiB",
                                 ".5MiB",   "5.MiB",
                                 "MiB",     " MiB",
                                 " %",      " 5 MiB",
                                 "5 MiB ",  "5 000 MiB",
                                 "5\nMiB",  "5 M iB",
                                 "%",       "101%",
                                 "0%",      "-5%",
                                 "nan%",    "infGiB",
                                 "1MB",     "1mib",
                                 "1GiBMiB", "281474976710657",
                                 "300TiB",  "99999999999999999999",
                                 "1%%",     "0.0000001KiB"}) {
    try {
      ADD_FAILURE() << text << " is " << bytes(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(error.what(),
                  HasSubstr("flag --budget is \"" + std::string(text) + "\", expected bytes"))
          << text;
    }
  }
  // Of something else than the machine's memory.
  const auto share = [](const char* text, int64_t whole) {
    return BytesOfText("limit", text, whole);
  };
  EXPECT_EQ(share("50 %", 1001), 500);
  EXPECT_EQ(share("100%", kMostCountedBytes), kMostCountedBytes);
  EXPECT_EQ(share("0.001%", 1000), 1);  // a limit of no bytes is none
  EXPECT_EQ(share("5 MiB", 1), int64_t{5} << 20);
  EXPECT_THAT(CatchStatus([&] { share("1e1%", 1000); }).message(),
              HasSubstr("limit is \"1e1%\", expected bytes"));
  EXPECT_LE(
      std::string(CatchStatus([&] { bytes(std::string(100000, '9').c_str()); }).message()).size(),
      300u);
}

}  // namespace
}  // namespace tidepool
