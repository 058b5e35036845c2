// Values that operators refuse, found by kernels of emulated devices and told at the next wait.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/graphs/cuda_graph.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"

namespace tidepool {
namespace {

const Device kDevice{DeviceType::kCuda, 0};

NDArray Indices(const std::vector<int64_t>& values) {
  return FromValues(values, {static_cast<int64_t>(values.size())}).To(kDevice);
}
template <typename T>
NDArray Numbers(const std::vector<T>& values) {
  return FromValues(values, {static_cast<int64_t>(values.size())}).To(kDevice);
}

NDArray Table() { return Numbers<float>({0, 1, 10, 11, 20, 21, 30, 31, 40, 41}).Reshape({5, 2}); }

// What a read throws; empty: nothing.
template <typename Call>
std::string Fault(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "";
}
std::string FaultOfReading(const NDArray& array) {
  return Fault([&] { array.CopyTo(Place::Heap()); });
}

constexpr char kTail[] = "; found by its kernel on cuda:0 in queue 0, which left it out";

TEST(ValueFaults, NothingWaitsForIndices) {
  const NDArray table = Table(), indices = Indices({4, 0, 4}),
                divisors = Numbers<int32_t>({2, 3, -1}), sevens = Numbers<int32_t>({7, 7, 7});
  const NDArray updates = Numbers<float>({1, 2, 3, 4, 5, 6}).Reshape({3, 2});
  FaultOfReading(Gather(table, indices));  // the records are made once
  NDArray sums = Zeros({5, 2}, DType::kFloat32, Place::On(kDevice));
  EmulatedCuda::Get().Finish();
  const auto before = EmulatedCuda::Get().counters();
  const NDArray rows = Gather(table, indices), ones = OneHot(indices, 5);
  ScatterAddInto(updates, indices, 0, sums);
  const NDArray quotients = Divide(sevens, divisors);
  const auto after = EmulatedCuda::Get().counters();
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  EXPECT_EQ(after.device_synchronizations, before.device_synchronizations);
  EXPECT_EQ(rows.ToVector<float>(), (std::vector<float>{40, 41, 0, 1, 40, 41}));
  EXPECT_EQ(ones.ToVector<float>(),
            (std::vector<float>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(sums.ToVector<float>(), (std::vector<float>{3, 4, 0, 0, 0, 0, 0, 0, 6, 8}));
  EXPECT_EQ(quotients.ToVector<int32_t>(), (std::vector<int32_t>{3, 2, -7}));
}

TEST(ValueFaults, AReadTellsOnceAndWhatWasInsideIsThere) {
  const NDArray rows = Gather(Table(), Indices({1, 5, 0, -1}));
  EXPECT_EQ(FaultOfReading(rows),
            std::string("Op [gather]: index 5 at position 1, expected 0 to 4") + kTail);
  EXPECT_EQ(rows.ToVector<float>(), (std::vector<float>{10, 11, 0, 0, 0, 1, 0, 0}));
  // All goes on.
  EXPECT_EQ(Gather(Table(), Indices({3})).ToVector<float>(), (std::vector<float>{30, 31}));
  // Of views with gaps as well, where positions are those of the indices as they are seen.
  const NDArray turned = Gather(Table().Transpose(), Indices({0, 4, 1, 7}).Slice(0, 2, 0, -1), 1);
  EXPECT_EQ(FaultOfReading(turned), "");
  const NDArray gaps = Gather(Table().Transpose(), Indices({0, 4, 1, 7}).Slice(0, 3, 0, -2), 1);
  EXPECT_EQ(FaultOfReading(gaps),
            std::string("Op [gather]: index 7 at position 0, expected 0 to 4") + kTail);
  EXPECT_EQ(gaps.ToVector<float>(), (std::vector<float>{0, 40, 0, 41}));
}

TEST(ValueFaults, EveryOperatorSaysWhatItFound) {
  const NDArray updates = Numbers<float>({1, 2, 3, 4, 5, 6}).Reshape({3, 2});
  NDArray sums = Zeros({5, 2}, DType::kFloat32, Place::On(kDevice));
  ScatterAddInto(updates, Indices({2, -7, 2}), 0, sums);
  EXPECT_EQ(FaultOfReading(sums),
            std::string("Op [scatter_add]: index -7 at position 1, expected 0 to 4") + kTail);
  EXPECT_EQ(sums.ToVector<float>(), (std::vector<float>{0, 0, 0, 0, 6, 8, 0, 0, 0, 0}));

  const NDArray ones = OneHot(Numbers<int32_t>({1, 3}), 3, DType::kInt8);
  EXPECT_EQ(FaultOfReading(ones),
            std::string("Op [one_hot]: index 3 at position 1, expected 0 to 2") + kTail);
  EXPECT_EQ(ones.ToVector<int8_t>(), (std::vector<int8_t>{0, 1, 0, 0, 0, 0}));

  const NDArray x = Numbers<int64_t>({7, -7, 9}), y = Numbers<int64_t>({2, 0, -2});
  const std::string zero =
      std::string(" has a zero; integer division by zero is not defined") + kTail;
  const NDArray quotients = Divide(x, y), rests = Remainder(x, y);
  EXPECT_EQ(FaultOfReading(quotients), "Op [divide]: Y" + zero);
  EXPECT_EQ(quotients.ToVector<int64_t>(), (std::vector<int64_t>{3, 0, -4}));
  EXPECT_EQ(rests.ToVector<int64_t>(), (std::vector<int64_t>{1, 0, -1}));
  EXPECT_EQ(FaultOfReading(FMod(x, y)), "Op [fmod]: Y" + zero);
  EXPECT_EQ(FaultOfReading(FloorDivide(x, y)), "Op [floor_divide]: Y" + zero);
  EXPECT_EQ(FaultOfReading(Power(x, y)),
            std::string("Op [power]: Y has a negative element, -2; integers have no negative "
                        "powers, Cast to a float type") +
                kTail);
  EXPECT_EQ(FaultOfReading(Divide(Numbers<float>({1}), Numbers<float>({0}))), "");
}

// Whatever the order of threads is.
TEST(ValueFaults, TheFirstOperatorAndTheFirstPositionAreTold) {
  std::vector<int64_t> many(3000, 9);
  for (int i = 0; i < 1500; ++i) many[i] = 2;
  many[1500] = 17;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    const NDArray rows = Gather(Table(), Indices(many));
    const NDArray ones = OneHot(Indices({8}), 5);
    EXPECT_EQ(FaultOfReading(ones),
              std::string("Op [gather]: index 17 at position 1500, expected 0 to 4") + kTail)
        << "seed " << seed;
    EXPECT_EQ(FaultOfReading(rows), "");
  }
}

TEST(ValueFaults, AnotherQueueIsNotToldAndTheQueueItselfIs) {
  const NDArray table = Table(), good = Indices({1}), bad = Indices({6});
  const DeviceQueue side = DeviceQueue::New(kDevice);
  NDArray there;
  {
    const QueueScope scope(side);
    there = Gather(table, bad);
  }
  EXPECT_EQ(Gather(table, good).ToVector<float>(), (std::vector<float>{10, 11}));
  DeviceQueue::First(kDevice).Wait();
  const std::string fault = Fault([&] { side.Wait(); });
  EXPECT_EQ(fault,
            "Op [gather]: index 6 at position 0, expected 0 to 4; found by its kernel on cuda:0 in "
            "queue 1, "
            "which left it out");
  side.Wait();
  // Who reads what was made there is told too.
  {
    const QueueScope scope(side);
    there = Gather(table, bad);
  }
  EXPECT_EQ(FaultOfReading(there), fault);
}

TEST(ValueFaults, OnTheHostInTheDevicesPlaceValuesAreLookedAtFirst) {
  // There is no kernel for them.
  const NDArray x = Numbers<int16_t>({7, 8}), y = Numbers<int16_t>({1, 0});
  EXPECT_EQ(Fault([&] { Divide(x, y); }),
            "Op [divide]: Y of shape [2] has a zero; integer division by zero is not defined");
  // Nor for elements picked one by one, whose places the host finds.
  EXPECT_EQ(Fault([&] {
              Gather(Table(), 0, Indices({9, 1}).Reshape({1, 2}));
            }),
            "Op [gather]: index 9 at position 0, expected 0 to 4");
  EXPECT_EQ(Fault([&] { OneHot(Indices({0}), 0); }),
            "Op [one_hot]: index 0 at position 0, but there is nothing to choose from");
}

TEST(ValueFaults, ReplaysOfAGraphAreCheckedEachTime) {
  Workspace workspace("graph", WorkspaceConfig::Training(), kDevice);
  const NDArray table = Table();
  NDArray indices = Indices({0, 1}), total = Zeros({2, 2}, DType::kFloat32, Place::On(kDevice));
  auto step = [&] {
    WorkspaceScope scope(workspace);
    AddInto(Gather(table, indices), total, total);
  };
  for (int i = 0; i < 3; ++i) step();
  CudaGraph graph;
  graph.Run(1, step);
  graph.Run(1, step);
  EXPECT_EQ(total.ToVector<float>(), (std::vector<float>{0, 5, 50, 55}));
  const NDArray bad = Indices({3, 12}), good = Indices({3, 4});
  CopyInto(bad, indices);
  graph.Run(1, step);
  EXPECT_EQ(FaultOfReading(total),
            std::string("Op [gather]: index 12 at position 1, expected 0 to 4") + kTail);
  EXPECT_EQ(total.ToVector<float>(), (std::vector<float>{30, 36, 50, 55}));
  CopyInto(good, indices);
  graph.Run(1, step);
  EXPECT_EQ(total.ToVector<float>(), (std::vector<float>{60, 67, 90, 96}));
  EXPECT_EQ(graph.captures(), 1);
}

}  // namespace
}  // namespace tidepool
