// Every kernel that is linked, by operator, type and provider, made from the operator list: new operators
// and kernels are here by themselves.
//
//   operator_benchmark --benchmark_filter='^softmax/f32/'
//
// What runs is the largest of some random cases of the contract suite, dense operands, one thread: for
// comparing providers and versions with each other. The label is its shapes; operations and bytes a second are those of
// the operator's row. Benchmarks of single operators at sizes of networks: backends/cpu.
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

constexpr int kDraws = 24;

int64_t BytesOf(const OpCase& c) {
  int64_t bytes = 0;
  for (const auto* operands : {&c.inputs, &c.outputs}) {
    for (const OperandValues& operand : *operands) {
      if (!operand.present) continue;
      bytes += operand.shape.NumElements() * static_cast<int64_t>(DTypeBytes(operand.dtype));
    }
  }
  return bytes;
}

OpCase LargestCase(OpCode op, DType dtype) {
  std::mt19937_64 random(20240229);
  OpCase largest = MakeOpCase(op, dtype, random);
  for (int i = 1; i < kDraws; ++i) {
    OpCase c = MakeOpCase(op, dtype, random);
    if (BytesOf(c) > BytesOf(largest)) largest = std::move(c);
  }
  return largest;
}

void RunOperator(benchmark::State& state, OpCode op, DType dtype, const char* provider) {
  SetThreadCount(1);
  const OpCase c = LargestCase(op, dtype);
  std::vector<NDArray> arrays;
  std::vector<const NDArray*> inputs;
  std::vector<NDArray*> outputs;
  for (const OperandValues& input : c.inputs) arrays.push_back(ArrayOf(input, Place::Heap()));
  for (const OperandValues& output : c.outputs) arrays.push_back(ArrayOf(output, Place::Heap()));
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (i >= c.inputs.size()) {
      outputs.push_back(&arrays[i]);
    } else {
      inputs.push_back(c.inputs[i].present ? &arrays[i] : nullptr);
    }
  }
  Workspace scratch("scratch", WorkspaceConfig::Training());
  const ScopedProvider scoped(provider);
  for (auto _ : state) {
    const WorkspaceScope scope(scratch);
    try {
      Dispatch(op, inputs, absl::MakeConstSpan(outputs), c.attributes.get());
    } catch (const Error& error) {
      state.SkipWithError(std::string(error.message()).c_str());  // supports() says no
      break;
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(c.ToString());
  const OperatorCost cost = CostOf(op, inputs, absl::MakeConstSpan(outputs), c.attributes.get());
  const auto rate = [&](double of_call) {
    return benchmark::Counter(of_call * static_cast<double>(state.iterations()),
                              benchmark::Counter::kIsRate);
  };
  state.counters["operations"] = rate(cost.operations);
  state.counters["bytes"] = rate(cost.bytes);
}

// Registers when the providers have.
void RegisterAll() {
  for (int number = 0; number < kOpCodes; ++number) {
    const auto op = static_cast<OpCode>(number);
    for (int type = 0; type < kDTypes; ++type) {
      const auto dtype = static_cast<DType>(type);
      for (const Kernel& kernel : KernelRegistry::Find(op, DeviceType::kHost, dtype)) {
        const std::string name =
            absl::StrCat(Info(op).name, "/", DTypeName(dtype), "/", kernel.provider);
        benchmark::RegisterBenchmark(
            name.c_str(), [op, dtype, provider = kernel.provider](benchmark::State& state) {
              RunOperator(state, op, dtype, provider);
            });
      }
    }
  }
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tidepool::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
