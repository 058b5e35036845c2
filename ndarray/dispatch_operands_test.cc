// Every row, called by Dispatch() directly with one operand after the other that the row does not have: what comes is an error
// that names operator and operand, never a crash, and nothing is written.
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/operand_marks.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Device kDevice = SimulatedDevice::kDevice;

// The arrays of a random case, and pointers to them that a test may change.
struct Call {
  Call(OpCode its_op, DType dtype, std::mt19937_64& random) : c(MakeOpCase(its_op, dtype, random)) {
    for (const OperandValues& input : c.inputs)
      arrays.push_back(input.present ? Of(input) : NDArray());
    for (const OperandValues& output : c.outputs) arrays.push_back(Of(output));
    for (NDArray& array : arrays) operands.push_back(array.is_defined() ? &array : nullptr);
  }
  static NDArray Of(const OperandValues& values) {
    NDArray array(values.shape, values.dtype, Place::Heap());
    for (int64_t i = 0; i < array.NumElements(); ++i) {
      values.Store(i, array.raw_data() + i * static_cast<int64_t>(DTypeBytes(values.dtype)));
    }
    return array;
  }
  const OperatorInfo& info() const { return Info(c.op); }
  size_t inputs() const { return c.inputs.size(); }
  const OperandMark& MarkOf(size_t i) const {
    return i < inputs() ? info().input_mark(static_cast<int>(i))
                        : info().output_mark(static_cast<int>(i - inputs()));
  }
  std::string NameOf(size_t i) const {
    return i < inputs() ? OperandName(info().inputs, static_cast<int>(i))
                        : OperandName(info().outputs, static_cast<int>(i - inputs()));
  }
  void Run() const {
    const std::vector<const NDArray*> from(operands.begin(),
                                           operands.begin() + static_cast<int64_t>(inputs()));
    const std::vector<NDArray*> to(operands.begin() + static_cast<int64_t>(inputs()),
                                   operands.end());
    Dispatch(c.op, from, absl::MakeConstSpan(to), c.attributes.get());
  }
  void RunCostOf() const {
    const std::vector<const NDArray*> from(operands.begin(),
                                           operands.begin() + static_cast<int64_t>(inputs()));
    const std::vector<NDArray*> to(operands.begin() + static_cast<int64_t>(inputs()),
                                   operands.end());
    CostOf(c.op, from, absl::MakeConstSpan(to), c.attributes.get());
  }

  OpCase c;
  std::vector<NDArray> arrays;
  std::vector<NDArray*> operands;
};

// With elements, so that nothing is let through because there is nothing to do.
Call NewCall(OpCode op, DType dtype, std::mt19937_64& random) {
  for (;;) {
    Call call(op, dtype, random);
    bool has_elements = true;
    for (const NDArray* operand : call.operands)
      has_elements = has_elements && (operand == nullptr || operand->NumElements() > 0);
    if (has_elements) return call;
  }
}

// Calls `check` with a call of each row and type.
void ForEachRow(const std::function<void(Call& call)>& check) {
  std::mt19937_64 random(20261126);
  for (int code = 0; code < kOpCodes; ++code) {
    const auto op = static_cast<OpCode>(code);
    for (int type = 0; type < kDTypes; ++type) {
      if (!Contains(Info(op).types, static_cast<DType>(type))) continue;
      Call call = NewCall(op, static_cast<DType>(type), random);
      check(call);
    }
  }
}

std::string Refused(const Call& call, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = CatchStatus([&] { call.Run(); });
  EXPECT_EQ(status.code(), code) << call.c.ToString() << ": " << status;
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("Op [", call.info().name, "]")));
  return std::string(status.message());
}

TEST(DispatchOperands, CasesAreAsRowsSay) {
  ForEachRow([](Call& call) {
    EXPECT_NO_THROW(call.Run()) << call.c.ToString();
    EXPECT_NO_THROW(call.RunCostOf()) << call.c.ToString();
  });
}

TEST(DispatchOperands, NullIsRefusedWhereTheRowWantsAnArray) {
  int absent = 0;
  ForEachRow([&](Call& call) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      NDArray* const array = call.operands[i];
      call.operands[i] = nullptr;
      // A chain has those that its steps say.
      if (call.MarkOf(i).optional && call.c.op == OpCode::kElementwiseChain && array != nullptr) {
        const auto& chain = call.c.attrs<ElementwiseChainAttributes>();
        const bool used = std::any_of(chain.steps, chain.steps + chain.count,
                                      [&](const ChainStep& s) { return s.operand == i; });
        EXPECT_EQ(CatchStatus([&] { call.Run(); }).code(),
                  used ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk);
      } else if (call.MarkOf(i).optional) {
        ++absent;
        EXPECT_NO_THROW(call.Run()) << call.c.ToString() << " without " << call.NameOf(i);
      } else {
        const std::string expected = absl::StrCat("Op [", call.info().name, "]: ", call.NameOf(i),
                                                  " is null, expected an array");
        EXPECT_EQ(Refused(call), expected);
        EXPECT_EQ(CatchStatus([&] { call.RunCostOf(); }).message(), expected);
      }
      call.operands[i] = array;
    }
  });
  EXPECT_GT(absent, 20);
}

TEST(DispatchOperands, UndefinedAndClosedArraysAreRefused) {
  ForEachRow([&](Call& call) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      NDArray* const array = call.operands[i];
      NDArray undefined;
      call.operands[i] = &undefined;
      EXPECT_THAT(Refused(call), HasSubstr(call.NameOf(i)));
      if (array != nullptr) {
        NDArray closed = array->Dup();
        closed.Close();
        call.operands[i] = &closed;
        EXPECT_THAT(Refused(call, absl::StatusCode::kFailedPrecondition),
                    HasSubstr(call.NameOf(i)));
      }
      call.operands[i] = array;
    }
  });
}

// Of every other type, as large as it was: one that is smaller would be read and written beyond its end.
TEST(DispatchOperands, TypesAreThoseOfTheRow) {
  int refused = 0, taken = 0;
  ForEachRow([&](Call& call) {
    const size_t key = call.info().key_is_input() ? 0 : call.inputs();
    for (size_t i = 0; i < call.operands.size(); ++i) {
      NDArray* const array = call.operands[i];
      if (array == nullptr) continue;
      for (int type = 0; type < kDTypes; ++type) {
        const auto dtype = static_cast<DType>(type);
        if (dtype == array->dtype()) continue;
        NDArray other = Zeros(array->shape(), dtype, Place::Heap());
        call.operands[i] = &other;
        if (i == key) {
          // The others are wrong then, where there are others; else it is another kernel that is asked for.
          if (CatchStatus([&] { call.Run(); }).code() == absl::StatusCode::kInvalidArgument)
            ++refused;
        } else if (Contains(TypesOf(call.MarkOf(i).type, call.c.dtype), dtype)) {
          ++taken;
          EXPECT_NO_THROW(call.Run())
              << call.c.ToString() << ": " << call.NameOf(i) << " of " << DTypeName(dtype);
        } else {
          ++refused;
          EXPECT_THAT(Refused(call),
                      StartsWith(absl::StrCat("Op [", call.info().name, "]: ", call.NameOf(i),
                                              " is ", DTypeName(dtype), ", expected ")));
          EXPECT_EQ(CatchStatus([&] { call.RunCostOf(); }).code(),
                    absl::StatusCode::kInvalidArgument);
        }
      }
      call.operands[i] = array;
    }
  });
  EXPECT_GT(refused, 5000);
  EXPECT_GT(taken, 50);
}

TEST(DispatchOperands, AllAreOnOneDevice) {
  SimulatedDevice::Get().Reset();
  ForEachRow([&](Call& call) {
    if (call.c.op == OpCode::kCopy || call.operands.size() < 2) return;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      NDArray* const array = call.operands[i];
      if (array == nullptr) continue;
      NDArray there = array->CopyTo(Place::On(kDevice));
      call.operands[i] = &there;
      // Where the first output is, all should be: of one that is elsewhere an input is named.
      EXPECT_THAT(Refused(call), AnyOf(HasSubstr("is on host"), HasSubstr("is on simulated:0")));
      call.operands[i] = array;
    }
  });
  SimulatedDevice::Get().Reset();
}

// A tape looks at operands before they are checked.
TEST(DispatchOperands, ATapeLeavesTheCheckingToTheCall) {
  ForEachRow([&](Call& call) {
    if (!IsFloating(call.c.dtype)) return;
    const size_t key = call.info().key_is_input() ? 0 : call.inputs();
    for (size_t i = 0; i < call.operands.size(); ++i) {
      NDArray* const array = call.operands[i];
      GradientTape tape;
      for (NDArray& watched : call.arrays) {
        if (watched.is_defined() && IsFloating(watched.dtype())) tape.Watch(watched);
      }
      NDArray undefined,
          wrong = array != nullptr ? Zeros(array->shape(), DType::kInt8, Place::Heap()) : NDArray();
      call.operands[i] = &undefined;
      Refused(call);
      if (!call.MarkOf(i).optional) {
        call.operands[i] = nullptr;
        Refused(call);
      }
      if (array != nullptr && call.MarkOf(i).type == 0 && i != key) {
        call.operands[i] = &wrong;
        Refused(call);
      }
      call.operands[i] = array;
    }
  });
}

TEST(DispatchOperands, ErrorsSayWhatWasFoundAndExpected) {
  const NDArray x = Ones({2, 3}), indices = Ones({2}, DType::kFloat32);
  NDArray z = Zeros({2, 2}), counts = Zeros({2}, DType::kInt64);
  const AxisAttributes axis{1};
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(OpCode::kGather, {&x, &indices}, {&z}, &axis);
            }).message(),
            "Op [gather]: indices is f32, expected i64 or i32, as X is f32");
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(OpCode::kAdd, {&x, &counts}, {&z});
            }).message(),
            "Op [add]: Y is i64, expected f32, as Z is f32");
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(OpCode::kAdd, {&x, nullptr}, {&z});
            }).message(),
            "Op [add]: Y is null, expected an array");
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(OpCode::kAdd, {&x, &x}, {nullptr});
            }).message(),
            "Op [add]: Z is null, expected an array");
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(OpCode::kAdd, {nullptr, nullptr, nullptr}, {nullptr, nullptr});
            }).message(),
            "Op [add]: found 3 inputs and 2 outputs, expected 2 (X,Y) and 1 (Z)");
}

}  // namespace
}  // namespace tidepool
