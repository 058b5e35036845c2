// NCCL with one rank: what a machine with one device can show of the library itself. The emulated devices run it too.
#include "tidepool/backends/cuda/nccl/nccl_library.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/gradient_buckets.h"
#include "tidepool/nn/distributed/nccl_transport.h"

namespace tidepool::nn {
namespace {

class OneRank final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool Run(const Exchange&) override { return true; }
  void Interrupt() noexcept override {}
};

class NcclOfOneRank : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::NcclLibrary::Find() == nullptr)
      GTEST_SKIP() << "NCCL: " << cuda::NcclLibrary::Description();
    if (cuda::CudaDevice::Count() == 0)
      GTEST_SKIP() << "no CUDA device: " << cuda::CudaDevice::WhyAbsent();
  }
};

TEST_F(NcclOfOneRank, DoesEachCollectiveBehindTheKernelsBeforeIt) {
  const std::unique_ptr<Transport> nccl = OpenNccl(std::make_unique<OneRank>());
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t count : {1, 1000, 3000001}) {
      for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                        CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
        NDArray array = Zeros({count}, dtype).To(nccl->device());
        array += 1.0;
        array *= 3.0;
        EXPECT_EQ(nccl->RunCollective({kind, ElementsOf(array), 0, "test", 1}),
                  Transport::Answer::kDone);
        array += 1.0;
        EXPECT_EQ(Cast(array.Slice(0, count - 1, count), DType::kFloat64).Item<double>(), 4)
            << CollectiveKindName(kind) << " of " << count;
      }
    }
  }
  std::vector<float> here = {1};
  EXPECT_EQ(nccl->RunCollective({CollectiveKind::kAllReduce, absl::MakeSpan(here), 0, "test", 1}),
            Transport::Answer::kNotMine);
}

TEST_F(NcclOfOneRank, EndsByAbortAndBeginsAnew) {
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<Transport> nccl = OpenNccl(std::make_unique<OneRank>());
    NDArray array = Ones({5}).To(nccl->device());
    EXPECT_EQ(nccl->RunCollective({CollectiveKind::kAllReduce, ElementsOf(array), 0, "test", 1}),
              Transport::Answer::kDone);
    if (i == 1) nccl->Interrupt();
  }
}

}  // namespace
}  // namespace tidepool::nn
