#include "tidepool/ndarray/kernel/registry.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/operand_marks.h"

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

// What there is, what comes later, and what a follower adds itself: each once.
TEST(Registry, FollowersSeeEveryKernelOnce) {
  static std::vector<std::string> seen;
  KernelRegistry& registry = KernelRegistry::Global();
  registry.Follow([](const Kernel& kernel) {
    seen.push_back(std::string(Info(kernel.op).name) + " " + kernel.provider);
    if (kernel.op != OpCode::kAbs || std::string(kernel.provider) != "followed") return;
    KernelRegistry::Global().Add(
        {OpCode::kNegate, DeviceType::kHost, DType::kFloat32, "follower", 1, &Nothing});
  });
  EXPECT_THAT(seen, testing::UnorderedElementsAre("relu first", "relu second", "relu third"));
  seen.clear();
  registry.Add({OpCode::kAbs, DeviceType::kHost, DType::kFloat32, "followed", 1, &Nothing});
  EXPECT_THAT(seen, ElementsAre("abs followed", "negate follower"));
}

TEST(Registry, NotesAreAskedForWhenShown) {
  static int asked = 0;
  KernelRegistry::Global().AddNote("second", [] { return "asked " + std::to_string(++asked); });
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(KernelRegistry::Global().Notes(), "second: asked 1\n");
}

TEST(RegistryDeathTest, WhatCannotBeMeantEndsTheProgramAndIsNamed) {
  const auto add = [](OpCode op, DType dtype, const char* provider, int priority,
                      void (*run)(const KernelCall&)) {
    KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, provider, priority, run});
  };
  const DType f32 = DType::kFloat32;
  EXPECT_DEATH(add(OpCode::kRelu, f32, "second", 9, &Nothing),
               "two kernels are linked of one provider: \\[relu\\] on host, f32 by provider "
               "\"second\", priority 5 and .*, priority 9");
  EXPECT_DEATH(
      add(OpCode::kRelu, f32, "other", 30, &Nothing),
      "two kernels are linked of one priority: .* \"first\", priority 30 and .* \"other\"");
  EXPECT_DEATH(add(OpCode::kRelu, DType::kBool, "other", 9, &Nothing),
               "\\[relu\\] on host, bool by provider \"other\".* not defined for such elements");
  EXPECT_DEATH(add(OpCode::kRelu, f32, "other", 9, nullptr), "no function to run");
  EXPECT_DEATH(add(OpCode::kRelu, f32, nullptr, 9, &Nothing), "no provider's name");
  EXPECT_DEATH(add(OpCode::kRelu, f32, "", 9, &Nothing), "no provider's name");
  EXPECT_DEATH(add(static_cast<OpCode>(400), f32, "other", 9, &Nothing), "operator 400 and");
  EXPECT_DEATH(add(OpCode::kRelu, static_cast<DType>(99), "other", 9, &Nothing), "type 99, exp");
  EXPECT_DEATH(add(OpCode::kRelu, f32, "a\nb", 9, &Nothing),
               "found control characters in the provider's name");
  // Views are made dense by it.
  EXPECT_DEATH(add(OpCode::kCopy, f32, "other", 9, &Nothing),
               "\\[copy\\] on host, f32 by provider \"other\", priority 9: found dense operands "
               "only, expected strided");
  for (const uint8_t number : {uint8_t{15}, uint8_t{200}}) {
    const auto nobodys = std::bit_cast<DeviceType>(number);
    EXPECT_DEATH(KernelRegistry::Global().Add({OpCode::kRelu, nobodys, f32, "other", 9, &Nothing}),
                 "is for device type " + std::to_string(number) + ", expected 0 to ");
  }
  EXPECT_DEATH(KernelRegistry::Global().AddNote("other", nullptr),
               "found null as the note of provider \"other\"");
  EXPECT_DEATH(KernelRegistry::Global().AddNote(nullptr, [] { return std::string(); }),
               "a note has no provider's name");
  EXPECT_DEATH(KernelRegistry::Global().Follow(nullptr), "found null as a follower");
}

TEST(Registry, FindsNothingForWhatIsNoOperatorOrElementType) {
  KernelRegistry& registry = KernelRegistry::Global();
  EXPECT_TRUE(registry.Find(static_cast<OpCode>(60000), Host().type, DType::kFloat32).empty());
  EXPECT_TRUE(registry.Find(OpCode::kRelu, Host().type, static_cast<DType>(99)).empty());
  EXPECT_TRUE(registry.Find(OpCode::kRelu, DeviceType::kCuda, DType::kFloat32).empty());
}

// As from a library that is opened while the program runs.
TEST(Registry, KernelsOfAnyDeviceTypeMayComeWhileOthersLook) {
  const DeviceType npu = DeviceType::Named("npu");
  const auto find = [&] { return KernelRegistry::Find(OpCode::kTanh, npu, DType::kFloat32); };
  EXPECT_TRUE(find().empty());
  static constexpr const char* kProviders[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    size_t most = 0;
    while (!done) {
      const absl::Span<const Kernel> kernels = find();
      EXPECT_GE(kernels.size(), most);  // none goes
      most = kernels.size();
      for (size_t i = 0; i < kernels.size(); ++i) {
        EXPECT_EQ(kernels[i].run, &Nothing);
        if (i > 0) {
          EXPECT_GT(kernels[i - 1].priority, kernels[i].priority);
        }
      }
    }
  });
  KernelRegistry::Global().Add({OpCode::kTanh, npu, DType::kFloat32, "p0", 50, &Nothing});
  const absl::Span<const Kernel> early = find();
  for (int i = 1; i < 8; ++i) {
    KernelRegistry::Global().Add(
        {OpCode::kTanh, npu, DType::kFloat32, kProviders[i], i * 37 % 17, &Nothing});
  }
  done = true;
  reader.join();
  EXPECT_EQ(find().size(), 8u);
  EXPECT_STREQ(early.front().provider, "p0");  // what was found stays
  EXPECT_THAT(KernelRegistry::Global().Table(), HasSubstr("npu        f32   p0, "));
}

TEST(Registry, OperandNames) {
  EXPECT_EQ(OperandName("X,Y,bias?", 2), "bias");
  EXPECT_EQ(OperandName("logits,labels:i64", 1), "labels");
  EXPECT_EQ(OperandName("X", 1), "extra");
  EXPECT_TRUE(Info(OpCode::kAdd).in_place());
  EXPECT_TRUE(Info(OpCode::kAdamUpdate).updates());
  EXPECT_FALSE(Info(OpCode::kMatMul).in_place() || Info(OpCode::kMatMul).updates());
}

TEST(Registry, OperatorsSayWhichAttributesTheyTake) {
  EXPECT_EQ(Info(OpCode::kMatMul).attributes, AttributesType::Of<MatMulAttributes>());
  EXPECT_EQ(Info(OpCode::kMatMul).attributes.bytes(), sizeof(MatMulAttributes));
  EXPECT_EQ(Info(OpCode::kMatMul).attributes.name(), "tidepool::MatMulAttributes");
  EXPECT_EQ(Info(OpCode::kAdd).attributes, AttributesType());
  EXPECT_EQ(Info(OpCode::kAdd).attributes.bytes(), 0u);
  EXPECT_EQ(Info(OpCode::kMatMul).input_count, 3);
  EXPECT_EQ(Info(OpCode::kFill).input_count, 0);
  EXPECT_EQ(Info(OpCode::kTopK).output_count, 2);
  const MatMulAttributes attributes;
  EXPECT_TRUE(AttributesRef(&attributes).Is(Info(OpCode::kMatMul).attributes));
  EXPECT_FALSE(AttributesRef(&attributes).Is(Info(OpCode::kConv2d).attributes));
  EXPECT_EQ(AttributesRef(&attributes).type_name(), "tidepool::MatMulAttributes");
  EXPECT_EQ(AttributesRef(&attributes).data(), &attributes);
  EXPECT_TRUE(AttributesRef(static_cast<MatMulAttributes*>(nullptr)).Is(AttributesType()));
}

TEST(Registry, ProgramsAddOperators) {
  struct Attributes {
    int value;
  };
  const OperatorInfo mine = {.name = "mine",
                             .inputs = "X,Y,bias?",
                             .outputs = "Z,W",
                             .attributes = AttributesType::Of<Attributes>(),
                             .types = SetOf(DType::kFloat32)};
  const int before = OperatorCount();
  EXPECT_EQ(FindOperator("mine"), std::nullopt);
  const OpCode op = AddOperator(mine);
  EXPECT_EQ(AddOperator(mine), op);
  EXPECT_EQ(OperatorCount(), before + 1);
  EXPECT_EQ(FindOperator("mine"), op);
  EXPECT_EQ(FindOperator("matmul"), OpCode::kMatMul);
  EXPECT_STREQ(Info(op).name, "mine");
  EXPECT_EQ(Info(op).input_count, 3);
  EXPECT_EQ(Info(op).output_count, 2);
  EXPECT_EQ(Info(op).attributes.bytes(), sizeof(Attributes));
  KernelRegistry::Global().Add({op, DeviceType::kHost, DType::kFloat32, "first", 1, &Nothing});
  EXPECT_EQ(KernelRegistry::Find(op, Host().type, DType::kFloat32).size(), 1u);
  EXPECT_THAT(KernelRegistry::Global().Table(),
              HasSubstr("mine                         host       f32   first\n"));

  const auto refused = [&](OperatorInfo info) {
    return MessageOf([&] { AddOperator(info); }, absl::StatusCode::kInvalidArgument);
  };
  OperatorInfo other = mine;
  other.outputs = "Z";
  EXPECT_THAT(refused(other), HasSubstr("operator \"mine\": there is another one of that name"));
  other.name = "matmul";
  EXPECT_THAT(refused(other), HasSubstr("another one of that name"));
  other.name = "Mine op";
  EXPECT_THAT(refused(other), HasSubstr("expected lower case letters"));
  other.name = "other";
  other.outputs = "";
  EXPECT_THAT(refused(other), HasSubstr("found 3 inputs and 0 outputs"));
  other.outputs = "Z";
  other.inputs = "A,B,C,D,E,F,G,H,I,J,K";
  EXPECT_THAT(refused(other), HasSubstr("found 11 inputs and 1 outputs, expected at most 10"));
  other.inputs = "";
  other.types = 0;
  EXPECT_THAT(refused(other), HasSubstr("found no element types"));
  other = mine;
  other.name = "other";
  other.types = 1 << kDTypes | 1;
  EXPECT_THAT(refused(other), HasSubstr("found types 8193, expected bits of the 13 there are"));
  other.types = 1;
  other.flags = 16;
  EXPECT_THAT(refused(other), HasSubstr("operator \"other\": found flags 16, expected at most 15"));
  other.flags = 0;
  for (const char* const operands : {",", "X,,Y", "X,", " ", "X, Y", "1X", "X?Y", "?", ":i64",
                                     "X:", "X:i63", "X??", "X:i64:f32", "X\n"}) {
    other.inputs = operands;
    other.outputs = "Z";
    EXPECT_THAT(refused(other), HasSubstr("operator \"other\": found operand \"")) << operands;
    other.inputs = "X";
    other.outputs = operands;
    EXPECT_THAT(refused(other), HasSubstr(std::string("(in \"") + operands + "\")")) << operands;
  }
  other.inputs = "X,Y,X?";
  other.outputs = "Z";
  EXPECT_THAT(refused(other),
              HasSubstr("found operand \"X\" twice, expected once (in \"X,Y,X?\")"));
  other.inputs = "X,Y";
  other.outputs = "Z,W?";
  EXPECT_EQ(refused(other),
            "operator \"other\": output W is optional, expected outputs that every call has");
  for (const char* const key : {"Z:f32", "Z:any", "Z:total"}) {
    other.outputs = key;
    EXPECT_THAT(
        refused(other),
        HasSubstr("found marks behind Z, whose type is the one that kernels are registered for"));
  }
  other.outputs = "Z";
  other.flags = operator_list::kKeyIsInput;
  for (const char* const key : {"X?,Y", "X:index,Y"}) {
    other.inputs = key;
    EXPECT_THAT(refused(other), HasSubstr("found marks behind X, whose type"));
  }
  other.flags = 0;
  other.inputs = "X,Y";
  for (const char* const word :
       {operator_list::kNoGradient, operator_list::kComposed, operator_list::kUnwritten}) {
    other.name = word;
    EXPECT_THAT(
        refused(other),
        HasSubstr("found a word that rows say in place of a gradient, expected another name"));
  }
  other.name = "other";
  for (const float cost :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    other.cost = CostRule(cost, 0);
    EXPECT_THAT(refused(other), HasSubstr("expected 0 or more operations, and a finite number"));
    other.cost = CostRule(0, cost);
    EXPECT_THAT(refused(other), HasSubstr("expected 0 or more operations, and a finite number"));
  }
  other.cost = {};
  other.shape = ShapeRule::kReduced;
  EXPECT_THAT(refused(other),
              HasSubstr("expected tidepool::ReduceAttributes, by which kReduced makes shapes"));
  other.shape = mine.shape;
  other.inputs = nullptr;
  EXPECT_THAT(refused(other), HasSubstr("operator \"other\": found null as its inputs"));
  other.inputs = "X";
  other.outputs = nullptr;
  EXPECT_THAT(refused(other), HasSubstr("operator \"other\": found null as its outputs"));
  other.outputs = "X";
  other.name = nullptr;
  EXPECT_THAT(refused(other), HasSubstr("operator \"\": found null as its name"));
  const std::string longest(200, 'a'), longer = longest + "a";
  other.name = longer.c_str();
  EXPECT_EQ(refused(other),
            "operator \"" + longest + "...\": found a name of 201 bytes, expected at most 200");
  // Counts are those of the names, as rows that are given back have them.
  other.name = "other";
  other.inputs = "X,Y";
  other.input_count = -5;
  EXPECT_EQ(refused(other),
            "operator \"other\": found input_count -5 and output_count 0, expected 0, or as many "
            "as there "
            "are names: 2 and 1");
  other.input_count = 2;
  other.output_count = 100;
  EXPECT_THAT(refused(other), HasSubstr("found input_count 2 and output_count 100"));
  EXPECT_EQ(AddOperator(Info(op)), op);
  EXPECT_EQ(OperatorCount(), before + 1);
  EXPECT_THAT(MessageOf([] { Info(static_cast<OpCode>(500)); }, absl::StatusCode::kInvalidArgument),
              HasSubstr("found operator 500, expected 0 to "));
}

TEST(Registry, MarksSayWhichTypesOperandsHave) {
  const auto types = [](std::string_view word, DType key) {
    const uint8_t mark = TypeMarkOf(word);
    EXPECT_NE(mark, kNoTypeMark) << word;
    return TypesOf(mark, key);
  };
  using enum DType;
  for (int type = 0; type < kDTypes; ++type) {
    const auto dtype = static_cast<DType>(type);
    EXPECT_EQ(types("", dtype), SetOf(dtype));
    EXPECT_EQ(types(DTypeName(dtype), kFloat32), SetOf(dtype));
    EXPECT_EQ(types("any", dtype), operator_list::kAllTypes);
    EXPECT_EQ(types("index", dtype), SetOf(kInt32) | SetOf(kInt64));
    EXPECT_EQ(types("total", dtype), SetOf(IsFloating(dtype) || dtype == kUInt64 ? dtype : kInt64));
    EXPECT_EQ(types("real", dtype), SetOf(IsFloating(dtype) ? dtype : kFloat64));
    EXPECT_EQ(types("statistic", dtype), SetOf(dtype == kFloat64 ? kFloat64 : kFloat32));
  }
  EXPECT_EQ(TypeMarkOf("i63"), kNoTypeMark);
  const OperatorInfo info =
      WithOperands({.inputs = "X,Y?:i64,W:index?,V?", .outputs = "Z,places:bool"});
  EXPECT_EQ(info.input_count, 4);
  EXPECT_EQ(info.output_count, 2);
  EXPECT_TRUE(info.has_marks);
  const auto expect = [](const OperandMark& mark, std::string_view word, bool optional) {
    EXPECT_EQ(mark.type, TypeMarkOf(word));
    EXPECT_EQ(mark.optional, optional);
  };
  expect(info.input_mark(0), "", false);
  expect(info.input_mark(1), "i64", true);
  expect(info.input_mark(2), "index", true);
  expect(info.input_mark(3), "", true);
  expect(info.output_mark(0), "", false);
  expect(info.output_mark(1), "bool", false);
  EXPECT_FALSE(Info(OpCode::kAdd).has_marks);
  EXPECT_TRUE(Info(OpCode::kGather).has_marks);
}

TEST(RegistryLast, ThereIsRoomForSomeHundredOperators) {
  OperatorInfo info = {.inputs = "X", .outputs = "Z", .types = SetOf(DType::kInt8)};
  std::vector<std::thread> threads;  // the same names from each
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([info]() mutable {
      for (int i = OperatorCount(); i < kMaxOpCodes + 5; ++i) {
        const std::string name = "op" + std::to_string(i);
        info.name = name.c_str();
        try {
          EXPECT_STREQ(Info(AddOperator(info)).name, name.c_str());
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error.message();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(OperatorCount(), kMaxOpCodes);
  EXPECT_EQ(FindOperator("mine").has_value(), true);
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
