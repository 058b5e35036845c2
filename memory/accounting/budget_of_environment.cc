// A budget from the environment, and amounts as text. Run with several values of the variable.
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

TEST(BudgetOfEnvironment, HoldsFromTheFirstByteOn) {
  const std::string text = std::getenv("TIDEPOOL_MEMORY_BUDGET");
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
