// What a gradient written by hand tells that it keeps: a tape has it meanwhile, so that it may wait elsewhere or be made again.
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/hand_gradient.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What the functions of a test have seen.
struct Seen {
  int runs = 0, made_again = 0;
  std::vector<bool> had_it;  // between the call and its gradient
};

// z = x^2 * w, of which it keeps x and makes x^2 again where that went.
class Squared final : public HandGradient {
 public:
  Squared(const NDArray& x, const NDArray& square, const NDArray& w, Seen& seen)
      : x_(x), square_(square), w_(w), seen_(seen) {}

  void Run(absl::Span<const NDArray> dz, absl::Span<NDArray> dx, bool /*is_last*/) override {
    ++seen_.runs;
    if (!square_.is_defined()) {
      ++seen_.made_again;
      square_ = x_ * x_;
    }
    dx[0] = dz[0] * x_ * w_ * 2.0;
    dx[1] = dz[0] * square_;
  }
  void VisitKept(KeptVisit visit) override {
    visit("input", x_, false);
    visit("square", square_, true);
    NDArray none;
    visit("nothing", none, true);
  }
  bool has_it() const { return x_.is_defined() || square_.is_defined(); }

 private:
  NDArray x_, square_;
  const NDArray w_;
  Seen& seen_;
};

NDArray Values(std::vector<float> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())},
                    Place::Heap());
}

NDArray Call(const NDArray& x, const NDArray& w, Seen& seen) {
  NDArray z;
  Squared* function = nullptr;
  {
    const NoGradientScope by_hand;
    const NDArray square = x * x;
    z = square * w;
    function = new Squared(x, square, w, seen);
  }
  const NDArray inputs[] = {x, w};
  SetGradient("squared", inputs, {&z, 1}, HandGradientHandle(function));
  seen.had_it.push_back(function->has_it());
  return Sum(z);
}

// In memory of its own, as a file would have it.
class Away final : public KeptArrayStore {
 public:
  void Take(const BufferHandle& buffer) {
    items_[buffer->id] = {std::string(reinterpret_cast<const char*>(buffer->data), buffer->bytes),
                          buffer->version.load()};
  }
  BufferHandle Bring(uint64_t id) override {
    const auto& [bytes, version] = items_.at(id);
    const NDArray array({static_cast<int64_t>(bytes.size())}, DType::kUInt8);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(array.buffer()->data));
    array.buffer()->id = id;
    array.buffer()->version.store(version);
    ++brought;
    return array.buffer();
  }
  void Drop(uint64_t) override { ++dropped; }
  int brought = 0, dropped = 0;

 private:
  std::map<uint64_t, std::pair<std::string, uint32_t>> items_;
};

TEST(TapeKept, ATapeHasWhatItsFunctionsTellThatTheyKeep) {
  Seen seen;
  const NDArray x = Values({1, 2, 3}), w = Values({4, 5, 6});
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(w);
  const NDArray loss = Call(x, w, seen);
  EXPECT_THAT(seen.had_it, ElementsAre(false));
  std::vector<std::string> kept;
  for (const SavedArray& saved : tape.Saved()) kept.push_back(saved.op + " " + saved.operand);
  EXPECT_THAT(kept, ElementsAre("squared input", "squared square"));
  tape.Backward(loss);
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(8, 20, 36));
  EXPECT_THAT(tape.Gradient(w).ToVector<float>(), ElementsAre(1, 4, 9));
  EXPECT_EQ(seen.made_again, 0);
}

TEST(TapeKept, WhatIsKeptWaitsElsewhereAndComesBack) {
  Seen seen;
  const NDArray w = Values({4, 5, 6});
  Away away;
  GradientTape tape;
  tape.Watch(w);
  NDArray x = Values({1, 2, 3});
  const NDArray loss = Call(x, w, seen);
  x = NDArray();
  int visited = 0;
  std::vector<uint64_t> ids;
  tape.VisitKept([&](const BufferHandle& buffer) {
    ++visited;
    away.Take(buffer);
    ids.push_back(buffer->id);
  });
  EXPECT_EQ(visited, 2);
  for (const uint64_t id : ids) EXPECT_TRUE(tape.ReleaseKept(id, 0, &away));
  EXPECT_EQ(tape.saved_bytes(), 0);
  tape.Backward(loss);
  EXPECT_EQ(away.brought, 2);
  EXPECT_THAT(tape.Gradient(w).ToVector<float>(), ElementsAre(1, 4, 9));
  EXPECT_EQ(seen.made_again, 0);
}

TEST(TapeKept, WhatCanBeMadeAgainGoesWhereTheCallerSaysSo) {
  Seen seen;
  const NDArray x = Values({1, 2, 3}), w = Values({4, 5, 6});
  for (const bool goes : {false, true}) {
    GradientTape tape;
    tape.Watch(w);
    tape.set_part(1);
    const NDArray first = Call(x, w, seen);
    tape.set_part(2);
    const NDArray second = Call(x, w, seen);
    int asked = 0;
    const int64_t before = tape.saved_bytes();
    tape.VisitRemakeable(2, [&](const BufferHandle& buffer) {
      ++asked;
      EXPECT_EQ(buffer->bytes, 12u);
      return goes;
    });
    EXPECT_EQ(asked, 1);  // not of the other part, and not what the function does not have
    EXPECT_EQ(tape.saved_bytes(), before - (goes ? 12 : 0));
    seen.made_again = 0;
    tape.Backward(first + second);
    EXPECT_EQ(seen.made_again, goes ? 1 : 0);
    EXPECT_THAT(tape.Gradient(w).ToVector<float>(), ElementsAre(2, 8, 18));
  }
}

TEST(TapeKept, OverwrittenIsAnErrorThatNamesWhatWasKept) {
  Seen seen;
  NDArray x = Values({1, 2, 3});
  const NDArray w = Values({4, 5, 6});
  GradientTape tape;
  tape.Watch(w);
  const NDArray loss = Call(x, w, seen);
  x *= 2.0;
  try {
    tape.Backward(loss);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("Op [squared] kept its input (f32 [3]"));
    EXPECT_THAT(error.message(), HasSubstr("overwrote it"));
  }
  EXPECT_EQ(seen.runs, 0);
}

// Asked twice, and by two tapes: of these each has the function, and it has its arrays.
TEST(TapeKept, OfTapesThatAskAgain) {
  Seen seen;
  const NDArray x = Values({1, 2, 3}), w = Values({4, 5, 6});
  {
    GradientTape tape;
    tape.Watch(w);
    const NDArray loss = Call(x, w, seen);
    for (const bool keep : {true, false}) {
      tape.Backward({&loss, 1}, {}, keep);
      EXPECT_THAT(tape.Gradient(w).ToVector<float>(), ElementsAre(1, 4, 9));
    }
  }
  seen.had_it.clear();
  GradientTape outer;
  outer.Watch(w);
  {
    GradientTape inner;
    inner.Watch(w);
    const NDArray loss = Call(x, w, seen);
    EXPECT_THAT(seen.had_it, ElementsAre(true));
    inner.Backward(loss);
    EXPECT_THAT(inner.Gradient(w).ToVector<float>(), ElementsAre(1, 4, 9));
  }
  EXPECT_EQ(seen.runs, 3);
}

// A tape that is used again takes no memory for as many records as it had: a step takes what the first one took, and no more.
TEST(TapeRecords, TakeNoMemoryTheSecondTime) {
  MemoryOwner& owner = MemoryOwner::Process().Child("a kept tape");
  const MemoryOwnerScope scope(owner);
  MemoryOwner& records = owner.Child("gradient tape");
  const auto usage = [&] { return MemoryBudget::Global().Of(records, Host()); };
  const NDArray x = FromValues(std::vector<float>{1, 2}, {2}, Place::Heap());
  for (const int calls : {5, 40, 150, 700, 3000}) {
    GradientTape tape;
    int64_t requests = 0, taken = 0;
    for (int pass = 0; pass < 4; ++pass) {
      SCOPED_TRACE(calls);
      tape.Restart();
      tape.Watch(x);
      NDArray y = x;
      for (int i = 0; i < calls; ++i) y = y + x;
      // Records of the segment lie where those behind it were.
      y = Recomputed(
          [&](absl::Span<const NDArray> in) {
            NDArray z = in[0];
            for (int i = 0; i < 2 * calls; ++i) z = z + x;
            return std::vector<NDArray>{z};
          },
          {&y, 1})[0];
      for (int i = 0; i < calls; ++i) y = y + x;
      tape.Backward(Sum(y));
      EXPECT_EQ(tape.Gradient(x).ToVector<float>()[0], static_cast<float>(4 * calls + 1));
      tape.Clear();
      if (pass == 0) {
        requests = usage().requests;
        taken = usage().taken_bytes;
        EXPECT_GT(taken, 0);
      }
      EXPECT_EQ(usage().requests, requests) << pass;
      EXPECT_EQ(usage().taken_bytes, taken) << pass;
    }
  }
  EXPECT_EQ(usage().taken_bytes, 0);
}

}  // namespace
}  // namespace tidepool
