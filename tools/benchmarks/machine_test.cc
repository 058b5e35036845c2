#include "tidepool/tools/benchmarks/machine.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::tools {
namespace {

TEST(BusySeconds, EverythingButIdleAndWaiting) {
  //                 user nice system idle wait irq softirq stolen guest
  const char text[] = "cpu  100 20 30 9999 8888 4 5 6 77 88\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
  EXPECT_DOUBLE_EQ(BusySeconds(text, 100), 1.65);
}

TEST(BusySeconds, RefusesOtherText) {
  for (const char* text : {"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3\n", "cpu  a b c d e f g h\n"}) {
    EXPECT_THROW(BusySeconds(text, 100), Error) << text;
  }
}

TEST(Machine, IsDescribed) {
  const Machine machine = DescribeMachine();
  EXPECT_GE(machine.processors, 1);
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_EQ(machine.kernel.rfind("Linux ", 0), 0u);
  EXPECT_EQ(std::count(machine.load.begin(), machine.load.end(), ' '), 2) << machine.load;
}

TEST(WhoIsBusy, NobodyIsAboveAnUnreachableLimit) { EXPECT_EQ(WhoIsBusy(0.05, 1e6), ""); }

TEST(WhoIsBusy, SomebodyIsAboveNoLimit) {
  EXPECT_NE(WhoIsBusy(0.05, -1).find("other processes used "), std::string::npos);
}

}  // namespace
}  // namespace tidepool::tools
