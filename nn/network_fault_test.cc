// operator new refused at each of its calls while a network is frozen, reported on and written as JSON: an error, and the
// network is what it was.
#include "tidepool/memory/testing/failing_new.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
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

}  // namespace
}  // namespace tidepool::nn
