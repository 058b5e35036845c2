// Both ways: what it lets pass, what it refuses, and what it says then.
#include "tidepool/memory/testing/ownership_matchers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/ownership/owner_traces.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BufferHandle New(Ownership& owner, size_t bytes) {
  BufferHandle buffer(NewHeapBuffer(bytes));
  owner.Attach(buffer);
  return buffer;
}

template <typename Action>
std::string WhyNot(const Action& action, OwnerRef owner) {
  ::testing::StringMatchResultListener why;
  EXPECT_FALSE(ExplainMatchResult(GrowsNothingIn(owner), action, &why));
  return why.str();
}

class GrowsNothing : public ::testing::Test {
 protected:
  GrowsNothing() : root_(Ownership::NewRoot("test")), model_(root_.NewChild("model")) {}
  Ownership root_, model_;
};

TEST_F(GrowsNothing, ALoopThatClosesWhatItOpens) {
  const BufferHandle weights = New(model_, 100);
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 100; ++i) {
          Ownership request = model_.NewChild("request");
          request.Lend(weights);
          New(request, 50);
          const BufferHandle passing = New(model_, 10);
        }
      },
      GrowsNothingIn(model_.ref()));
  EXPECT_THAT([] {}, GrowsNothingIn(model_.ref()));
}

TEST_F(GrowsNothing, LessIsFineAndSoIsTheSameAnew) {
  BufferHandle x = New(model_, 100);
  Ownership session = model_.NewChild("session");
  EXPECT_THAT(
      [&] {
        x = New(model_, 100);
        session = model_.NewChild("session");
      },
      GrowsNothingIn(model_.ref()));
  EXPECT_THAT([&] { x = BufferHandle(); }, GrowsNothingIn(model_.ref()));
}

TEST_F(GrowsNothing, AnArrayLeftBehindIsNamed) {
  std::vector<BufferHandle> kept;
  const std::string why = WhyNot([&] { kept.push_back(New(model_, 100)); }, model_.ref());
  EXPECT_EQ(why,
            "which left in owner [model]:\n"
            "  model: managers 0, arrays +1, bytes +100, loans 0\n"
            "    array " +
                std::to_string(kept[0]->id) + ": 100 bytes");
  EXPECT_THAT([&] { kept.push_back(New(model_, 1)); }, Not(GrowsNothingIn(model_.ref())));
}

TEST_F(GrowsNothing, ManagersLoansAndWhatIsBelowCount) {
  const BufferHandle weights = New(model_, 100);
  Ownership leak;
  EXPECT_THAT(WhyNot([&] { leak = model_.NewChild("leak"); }, model_.ref()),
              HasSubstr("model/leak: managers +1, arrays 0, bytes 0, loans 0"));
  EXPECT_THAT(WhyNot([&] { leak.Lend(weights); }, model_.ref()),
              HasSubstr("model/leak: managers 0, arrays 0, bytes 0, loans +1\n    borrowed array"));
  // What shrinks elsewhere does not make up for it.
  EXPECT_THAT(WhyNot([&] { leak.Attach(weights); }, model_.ref()),
              HasSubstr("model/leak: managers 0, arrays +1, bytes +100"));
}

TEST_F(GrowsNothing, ManyNewOnesAreCutShort) {
  std::vector<BufferHandle> kept;
  const auto leak = [&] {
    for (int i = 0; i < 25; ++i) kept.push_back(New(model_, 1));
  };
  EXPECT_THAT(WhyNot(leak, model_.ref()), HasSubstr("\n    and 15 more"));
}

TEST_F(GrowsNothing, WithTracingTheLineIsNamed) {
  BufferHandle kept;
  MemoryTracing::Enable();
  const std::string why = WhyNot(
      [&] {
        kept = New(model_, 64);
        internal::TraceOwned(*kept.get(), "f32 [16]");
      },
      model_.ref());
  MemoryTracing::Disable();
  EXPECT_THAT(why, HasSubstr(": 64 bytes, f32 [16] made at "));
}

TEST_F(GrowsNothing, AClosedManagerIsRefused) {
  EXPECT_EQ(WhyNot([&] { model_.Close(); }, model_.ref()), "which closed owner [model]");
  bool ran = false;
  const OwnerRef closed = model_.ref();
  EXPECT_THAT(WhyNot([&] { ran = true; }, closed), HasSubstr("which was not run"));
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace tidepool
