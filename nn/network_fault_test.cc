// operator new refused at each of its calls while a network is frozen, reported on and written as JSON, and memory while it is trained:
// an error, and the network is what it was.
#include "tidepool/memory/testing/failing_new.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

Network SmallNetwork() {
  return Network({5}, {Dense(7, Activation::kTanh), BatchNormalization(), Dense(3)}, 4);
}

NDArray Features() { return RandomUniform({2, 5}, -1, 1, 1, 1, Place::Heap()); }

// Calls with the n-th allocation refused, for each n, until none is. How many were.
template <typename Call>
int RefuseEach(const Call& call) {
  for (int64_t n = 0;; ++n) {
    if (n > 100000 || !call(n)) return static_cast<int>(n);
  }
}

TEST(NetworkFault, FreezingThatIsRefusedMemoryChangesNothing) {
  const NDArray x = Features();
  const std::vector<std::string> patterns = {"0.dense"};
  const int refused = RefuseEach([&](int64_t n) {
    Network network = SmallNetwork();
    const std::vector<float> before = network.Output(x).ToVector<float>();
    until_fault = n, fault_happened = false;
    const bool went_through = Try([&] { network.SetFrozen(patterns); });
    EXPECT_EQ(network.layout_version(), went_through ? 1 : 0) << n;
    EXPECT_EQ(network.named_parameters().size(), 8) << n;
    EXPECT_EQ(network.named_parameters()[0].name,
              went_through ? "1.batch_norm.scale" : "0.dense.weight");
    EXPECT_EQ(network.gradients().shape(), network.parameters().shape()) << n;
    EXPECT_EQ(network.Output(x).ToVector<float>(), before) << n;
    // And it can be done still.
    network.SetFrozen(patterns);
    EXPECT_EQ(network.Output(x).ToVector<float>(), before) << n;
    return fault_happened;
  });
  EXPECT_GT(refused, 20);
}

TEST(NetworkFault, AReportThatIsRefusedMemoryLeavesTheNetworkWhole) {
  const NDArray x = Features();
  Network network = SmallNetwork();
  const std::vector<float> before = network.Output(x).ToVector<float>();
  const Workspace* const workspace = &network.inference_workspace();
  const int refused = RefuseEach([&](int64_t n) {
    until_fault = n, fault_happened = false;
    Try([&] { ReportMemory(network, {.batch = 2}); });
    EXPECT_EQ(&network.inference_workspace(), workspace) << n;
    if (n < 40) {
      EXPECT_EQ(network.Output(x).ToVector<float>(), before) << n;
    }
    return fault_happened;
  });
  EXPECT_GT(refused, 100);
  EXPECT_EQ(network.Output(x).ToVector<float>(), before);
}

// The process ended in a destructor of the tree that the text was made of.
TEST(NetworkFault, JsonIsWrittenAndReadOrRefused) {
  NetworkConfig config = NetworkConfig::Sequential({3, 4}, {TimeDistributed(Dense(2)), Dense(3)});
  const std::string text = NetworkToJson(config);
  EXPECT_GT(RefuseEach([&](int64_t n) {
              std::string written;
              until_fault = n, fault_happened = false;
              if (Try([&] { written = NetworkToJson(config); })) {
                EXPECT_EQ(written, text);
              }
              return fault_happened;
            }),
            20);
  EXPECT_GT(RefuseEach([&](int64_t n) {
              NetworkConfig read;
              until_fault = n, fault_happened = false;
              if (Try([&] { read = NetworkFromJson(text); })) {
                EXPECT_EQ(NetworkToJson(read), text);
              }
              return fault_happened;
            }),
            50);
}

// States that the caller has no arrays for yet take memory at the end of the step, when everything else has been done.
TEST(NetworkFault, AStepWithStatesThatIsRefusedMemoryHasDoneNothing) {
  // What a step leaves behind three others.
  struct Run {
    Network network{{3, 2}, {Gru(4), BatchNormalization(), Lstm(300), Dense(3)}, 4};
    NetworkInputs inputs{
        {RandomUniform({64, 3, 2}, -1, 1, 1)}, {Zeros({64}, DType::kInt64)}, {}, {}};
    std::vector<std::vector<NDArray>> others;  // that stay: the last ones take memory
    std::vector<NDArray> states;

    Run() : states(network.NewStates()) {
      for (int i = 0; i < 3; ++i) Step(others.emplace_back(network.NewStates()));
    }
    void Step(std::vector<NDArray>& its) {
      const WorkspaceScope scope(network.training_workspace());
      network.ComputeGradients(inputs, &its);
    }
    std::vector<std::vector<float>> Values() const {
      std::vector<std::vector<float>> values = {network.gradients().ToVector<float>(),
                                                network.beside().ToVector<float>()};
      for (const NDArray& state : states) values.push_back(state.ToVector<float>());
      return values;
    }
  };
  std::vector<std::vector<float>> expected;
  {
    Run run;
    run.Step(run.states);
    expected = run.Values();
  }
  Run run;
  const std::vector<float> averages = run.network.beside().ToVector<float>();
  MemoryBudget& budget = MemoryBudget::Global();
  int refused = 0;
  for (uint64_t more = 0;; more += 1024) {
    ASSERT_LT(more, 1'000'000u);
    budget.SetProcessLimit(budget.process().taken_bytes + more);
    const absl::Cleanup unlimited = [&] { budget.SetProcessLimit(MemoryBudget::kUnlimited); };
    try {
      run.Step(run.states);
      break;
    } catch (const OutOfMemoryError&) {
      ++refused;
    }
    ASSERT_EQ(run.network.step(), 3) << more;
    ASSERT_EQ(run.network.beside().ToVector<float>(), averages) << more;
    for (const NDArray& state : run.states) ASSERT_FALSE(state.is_defined()) << more;
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(run.Values(), expected);
}

}  // namespace
}  // namespace tidepool::nn
