#include "tidepool/ndarray/testing/op_contract_suite.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/operand_checks.h"
#include "tidepool/ndarray/testing/comparison.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/op_case.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

constexpr char kOracle[] = "reference";
constexpr char kBuiltin[] = "builtin";
constexpr uint64_t kDefaultSeed = 20240229;

uint64_t Seed() {
  const char* text = std::getenv("TIDEPOOL_CONTRACT_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : kDefaultSeed;
}

// The cases of an operator are the same whatever rows there are before its own (FNV-1a).
uint64_t NumberOf(const char* name) {
  uint64_t number = 2166136261;
  for (; *name != 0; ++name)
    number = ((number ^ static_cast<unsigned char>(*name)) * 16777619) & 0xffffffff;
  return number;
}

int CaseCount(const OpContract& contract, OpCode op, DType dtype) {
  const char* text = std::getenv("TIDEPOOL_CONTRACT_CASES");
  const double factor = contract.cases * (text != nullptr ? std::atof(text) : 1);
  const int cases = dtype == DType::kFloat32 ? 800 : 250;
  return std::max(1, static_cast<int>((Info(op).heavy() ? cases * 3 / 8 : cases) * factor));
}

bool Has(const std::string& provider, OpCode op, DType dtype, Device device = Host()) {
  for (const Kernel& kernel : KernelRegistry::Find(op, device.type, dtype)) {
    if (provider == kernel.provider) return true;
  }
  return false;
}

std::string Name(OpCode op, DType dtype) {
  return absl::StrCat(Info(op).name, " ", DTypeName(dtype));
}

// As it stands there, or by "<operator> *" or "* <type>".
bool Contains(const std::vector<std::string>& list, OpCode op, DType dtype) {
  for (const std::string& pattern :
       {Name(op, dtype), absl::StrCat(Info(op).name, " *"), absl::StrCat("* ", DTypeName(dtype))}) {
    if (std::find(list.begin(), list.end(), pattern) != list.end()) return true;
  }
  return false;
}

using Results = std::vector<OperandValues>;

class ThreadCountScope {
 public:
  explicit ThreadCountScope(int threads) : previous_(ThreadCount()) { SetThreadCount(threads); }
  ~ThreadCountScope() { SetThreadCount(previous_); }

 private:
  int previous_;
};

OperandValues ReadDense(const NDArray& from) {
  const NDArray array = from.To(Host());
  OperandValues values{array.shape(), array.dtype(), true, {}, {}};
  const auto width = static_cast<int64_t>(DTypeBytes(values.dtype));
  for (int64_t i = 0; i < array.NumElements(); ++i) values.Append(array.raw_data() + i * width);
  return values;
}

// Dense operands in the current place, if that is on the device.
Results RunDense(const OpCase& c, const char* provider, Device device) {
  std::vector<NDArray> arrays;
  const Place here = Place::CurrentOn(Host());
  for (const OperandValues& values : c.inputs) arrays.push_back(ArrayOf(values, here).To(device));
  for (const OperandValues& values : c.outputs) arrays.push_back(ArrayOf(values, here).To(device));
  std::vector<const NDArray*> inputs;
  std::vector<NDArray*> outputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(c.inputs[i].present ? &arrays[i] : nullptr);
  }
  for (size_t o = 0; o < c.outputs.size(); ++o) outputs.push_back(&arrays[c.inputs.size() + o]);
  {
    ScopedProvider scoped(provider);
    Dispatch(c.op, inputs, absl::MakeConstSpan(outputs), c.attributes.get());
  }
  Results results;
  for (const NDArray* output : outputs) results.push_back(ReadDense(*output));
  return results;
}

// Fill and copy have no other implementation to compare with.
Results PlainFillOrCopy(const OpCase& c) {
  OperandValues z{c.outputs[0].shape, c.outputs[0].dtype, true, {}, {}};
  for (int64_t i = 0; i < z.shape.NumElements(); ++i) {
    uint64_t element = 0;
    VisitDType(z.dtype, [&](auto t) {
      using T = decltype(t);
      T value;
      if (c.op == OpCode::kFill) {
        value = ConvertElement<T>(c.attrs<FillAttributes>().value);
      } else if (IsFloating(c.inputs[0].dtype)) {
        value = ConvertElement<T>(c.inputs[0].reals[i]);
      } else if (c.inputs[0].dtype == DType::kUInt64) {
        value = ConvertElement<T>(static_cast<uint64_t>(c.inputs[0].ints[i]));
      } else {
        value = ConvertElement<T>(c.inputs[0].ints[i]);
      }
      std::memcpy(&element, &value, sizeof(value));
    });
    z.Append(&element);
  }
  return {z};
}

Results Expected(const OpCase& c) {
  if (c.op == OpCode::kFill || c.op == OpCode::kCopy) return PlainFillOrCopy(c);
  ThreadCountScope one(1);
  return RunDense(c, kOracle, Host());
}

// Random layouts drawn from `layout_seed`; the output takes the place of input `in_place` if that
// is not negative. Adds what is wrong besides the results to `problems`.
Results RunViews(const OpCase& c, const OpContract& contract, int threads, uint64_t layout_seed,
                 int in_place, std::string* problems) {
  std::mt19937_64 random(layout_seed);
  std::vector<std::unique_ptr<GuardedArray>> arrays;
  std::string layouts;
  auto add = [&](const OperandValues& values) {
    const ViewLayout layout = RandomLayout(random);
    absl::StrAppend(&layouts, layouts.empty() ? "" : ", ", ViewLayoutName(layout));
    arrays.push_back(std::make_unique<GuardedArray>(values, layout, random, contract.device));
  };
  for (const OperandValues& values : c.inputs) add(values);
  for (const OperandValues& values : c.outputs) add(values);
  std::vector<const NDArray*> inputs;
  std::vector<NDArray*> outputs;
  const size_t input_count = c.inputs.size();
  for (size_t i = 0; i < input_count; ++i) {
    inputs.push_back(c.inputs[i].present ? &arrays[i]->view() : nullptr);
  }
  for (size_t o = 0; o < c.outputs.size(); ++o) outputs.push_back(&arrays[input_count + o]->view());
  GuardedArray* first_output = arrays[input_count].get();
  if (in_place >= 0) {
    first_output = arrays[in_place].get();
    outputs[0] = &first_output->view();
  }
  {
    ThreadCountScope scoped_threads(threads);
    ScopedProvider scoped(contract.provider.c_str());
    Dispatch(c.op, inputs, absl::MakeConstSpan(outputs), c.attributes.get());
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool is_output = arrays[i].get() == first_output || i > input_count;
    if (!is_output && i < input_count && !arrays[i]->is_unchanged()) {
      absl::StrAppend(problems, "input ", OperandName(Info(c.op).inputs, static_cast<int>(i)),
                      " was written to (layouts ", layouts, "); ");
    }
    if (!arrays[i]->guards_are_whole()) {
      absl::StrAppend(problems, "operand ", i, " was written outside its view (layouts ", layouts,
                      "); ");
    }
  }
  Results results = {first_output->Read()};
  for (size_t o = 1; o < c.outputs.size(); ++o) results.push_back(arrays[input_count + o]->Read());
  return results;
}

// What the contract says besides the list.
Tolerance ToleranceHere(const OpContract& contract, OpCode op, DType dtype) {
  for (const OpContract::Close& close : contract.close) {
    if (Contains({close.kernels}, op, dtype)) {
      return InPrecisionOf(dtype, {Comparison::kClose, close.relative, close.absolute});
    }
  }
  return ToleranceOf(op, dtype);
}

// Null: the tolerance of the list, or the contract's.
std::string Compare(const Results& actual, const Results& expected, const Tolerance* tolerance,
                    const OpCase& c, const OpContract& contract) {
  for (size_t o = 0; o < expected.size(); ++o) {
    const std::string difference = Difference(
        actual[o], expected[o],
        tolerance != nullptr ? *tolerance : ToleranceHere(contract, c.op, expected[o].dtype),
        tolerance != nullptr ? 1 : c.inner);
    if (difference.empty()) continue;
    return absl::StrCat(OperandName(Info(c.op).outputs, static_cast<int>(o)), ": ", difference);
  }
  return "";
}

// Why the provider breaks the contract with this case; empty when it keeps it.
std::string CheckCase(const OpCase& c, const OpContract& contract, uint64_t layout_seed) {
  const Tolerance same_bits;
  const Results expected = Expected(c);
  std::string problems;

  const Results once = RunViews(c, contract, 1, layout_seed, -1, &problems);
  if (!problems.empty()) return problems;
  std::string wrong = Compare(once, expected, nullptr, c, contract);
  if (!wrong.empty()) return wrong;

  for (int threads = 2; threads <= 3; ++threads) {
    const Results again = RunViews(c, contract, threads, layout_seed, -1, &problems);
    wrong = Compare(again, once, &same_bits, c, contract);
    if (!wrong.empty() || !problems.empty()) {
      return absl::StrCat("with ", threads, " threads instead of 1: ", wrong, problems);
    }
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!MayBeWrittenOver(c.op, c.attributes.get(), static_cast<int>(i), 0, contract.device))
      continue;
    if (!(c.inputs[i].shape == c.outputs[0].shape) || c.inputs[i].dtype != c.outputs[0].dtype) {
      continue;
    }
    const Results again = RunViews(c, contract, 1, layout_seed + 1, static_cast<int>(i), &problems);
    wrong = Compare(again, expected, nullptr, c, contract);
    if (!wrong.empty() || !problems.empty()) {
      return absl::StrCat("written over input ", i, ": ", wrong, problems);
    }
  }

  WorkspaceConfig config = WorkspaceConfig::Training();
  config.huge_pages = config.prefault = false;
  config.temp_block_size = 1 << 16;
  config.alignment = size_t{16} << layout_seed % 3;  // the least there is, and what most have
  Workspace workspace("contract", config, contract.device);
  Results first_cycle;
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    const NDArray shift({1}, DType::kFloat32, Place::CurrentOn(contract.device));
    const Results results = RunDense(c, contract.provider.c_str(), contract.device);
    wrong = Compare(results, expected, nullptr, c, contract);
    if (wrong.empty() && cycle > 0) wrong = Compare(results, first_cycle, &same_bits, c, contract);
    if (!wrong.empty()) return absl::StrCat("in cycle ", cycle + 1, " of a workspace: ", wrong);
    first_cycle = results;
  }
  return "";
}

bool IsListed(const OpContract& contract, OpCode op, DType dtype) {
  return contract.only.empty() ? Contains(contract.gaps, op, dtype)
                               : !Contains(contract.only, op, dtype);
}

template <typename Visit>
void ForEachKey(Visit visit) {
  for (int op = 0; op < OperatorCount(); ++op) {
    if (op >= kOpCodes && FindOwnCases(static_cast<OpCode>(op)) == nullptr) continue;
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      if (Contains(Info(static_cast<OpCode>(op)).types, static_cast<DType>(dtype))) {
        visit(static_cast<OpCode>(op), static_cast<DType>(dtype));
      }
    }
  }
}

class FunctionTest : public ::testing::Test {
 public:
  explicit FunctionTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

void Register(const std::string& suite, const std::string& name, std::function<void()> body) {
  ::testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body] { return static_cast<::testing::Test*>(new FunctionTest(body)); });
}

}  // namespace

std::vector<std::string> OperatorProblems(const OpContract& contract, OpCode op, DType dtype,
                                          int cases) {
  if (!Has(contract.provider, op, dtype, contract.device))
    return {absl::StrCat("no kernel for ", Name(op, dtype))};
  const uint64_t seed = Seed();
  const bool may_refuse = Contains(contract.may_refuse, op, dtype);
  int refused = 0;
  std::vector<std::string> problems;
  for (int i = 0; i < cases && problems.size() < 3; ++i) {
    std::seed_seq sequence{seed, NumberOf(Info(op).name), static_cast<uint64_t>(dtype),
                           static_cast<uint64_t>(i)};
    std::mt19937_64 random(sequence);
    const OpCase c = MakeOpCase(op, dtype, random);
    std::string problem;
    try {
      problem = CheckCase(c, contract, random());
    } catch (const Error& error) {
      if (may_refuse && error.code() == absl::StatusCode::kUnimplemented) {
        ++refused;
        continue;
      }
      problem = error.message();
    }
    if (problem.empty()) continue;
    problems.push_back(absl::StrCat(c.ToString(), " by \"", contract.provider, "\": ", problem,
                                    "; seed ", seed, ", case ", i));
  }
  std::printf("%s: %d cases, %d refused, seed %llu\n", Name(op, dtype).c_str(), cases, refused,
              static_cast<unsigned long long>(seed));
  if (cases - refused < cases * contract.least_run) {
    problems.push_back(absl::StrCat("supports() refuses ", refused, " of ", cases, " calls"));
  }
  return problems;
}

std::vector<std::string> GapProblems(const OpContract& contract) {
  std::vector<std::string> problems;
  if (!Has(kOracle, OpCode::kMatMul, DType::kFloat32)) {
    problems.push_back("the contract needs //backends/reference; it is not linked");
  }
  std::vector<std::string> names;
  ForEachKey([&](OpCode op, DType dtype) {
    const std::string name = Name(op, dtype);
    names.insert(names.end(),
                 {name, absl::StrCat(Info(op).name, " *"), absl::StrCat("* ", DTypeName(dtype))});
    const bool has = Has(contract.provider, op, dtype, contract.device);
    const bool wanted = Has(kOracle, op, dtype) || Has(kBuiltin, op, dtype);
    if (!wanted) {
      problems.push_back(
          absl::StrCat("the list has ", name, ", neither reference nor builtin has"));
    }
    if (!has && !IsListed(contract, op, dtype)) {
      problems.push_back(absl::StrCat("gap: \"", contract.provider, "\" has no kernel for ", name));
    }
    if (has && IsListed(contract, op, dtype)) {
      problems.push_back(
          absl::StrCat("stale list: \"", contract.provider, "\" has a kernel for ", name));
    }
  });
  std::vector<std::string> close;
  for (const OpContract::Close& each : contract.close) close.push_back(each.kernels);
  for (const auto& list : {contract.gaps, contract.only, contract.may_refuse, close}) {
    for (const std::string& name : list) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      problems.push_back(
          absl::StrCat("unknown name \"", name, "\", expected \"<operator> <type>\""));
    }
  }
  return problems;
}

bool RegisterOpContract(const OpContract& contract) {
  const std::string suite = absl::StrCat("OpContract_", contract.provider);
  auto report = [](const std::vector<std::string>& problems) {
    for (const std::string& problem : problems) ADD_FAILURE() << problem;
  };
  Register(suite, "gaps", [contract, report] {
    std::printf("%s", KernelRegistry::Global().Table().c_str());
    report(GapProblems(contract));
  });
  ForEachKey([&](OpCode op, DType dtype) {
    if (IsListed(contract, op, dtype)) return;
    Register(suite, absl::StrCat(Info(op).name, "_", DTypeName(dtype)), [=] {
      if (FindDeviceProvider(contract.device) == nullptr) {
        GTEST_SKIP() << "there is no device " << DeviceName(contract.device);
      }
      report(OperatorProblems(contract, op, dtype, CaseCount(contract, op, dtype)));
    });
  });
  return true;
}

}  // namespace tidepool
