// What the host has newer of several arrays goes to an emulated device together.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

// Arrays of the device that the host wrote last: element i of array a is 100 a + i.
std::vector<NDArray> WrittenOnHost(int arrays) {
  std::vector<NDArray> made;
  for (int a = 0; a < arrays; ++a) {
    NDArray array({10 + a}, DType::kFloat32, Place::On(kDevice));
    float* const elements = array.mutable_data<float>();
    for (int i = 0; i < 10 + a; ++i) elements[i] = static_cast<float>(100 * a + i);
    made.push_back(array);
  }
  return made;
}

std::vector<const NDArray*> PointersTo(const std::vector<NDArray>& arrays) {
  std::vector<const NDArray*> pointers;
  for (const NDArray& array : arrays) pointers.push_back(&array);
  return pointers;
}

// As the device has them: a sum is computed there.
void ExpectThere(const std::vector<NDArray>& arrays) {
  for (size_t a = 0; a < arrays.size(); ++a) {
    const std::vector<float> twice =
        Add(arrays[a], arrays[a]).CopyTo(Place::Heap()).ToVector<float>();
    for (size_t i = 0; i < twice.size(); ++i)
      ASSERT_EQ(twice[i], 2 * static_cast<float>(100 * a + i))
          << "array " << a << ", element " << i;
  }
}

EmulatedCuda::Counters Now() {
  EmulatedCuda::Get().Finish();
  return EmulatedCuda::Get().counters();
}

TEST(UploadsOnCuda, SeveralArraysAreOneCall) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    const std::vector<NDArray> arrays = WrittenOnHost(5);
    std::vector<const NDArray*> pointers = PointersTo(arrays);
    const NDArray undefined, on_host = Zeros({3}, DType::kFloat32, Place::Heap());
    pointers.insert(pointers.end(), {nullptr, &undefined, &on_host});
    const EmulatedCuda::Counters before = Now();
    SendToDevice("test", pointers);
    SendToDevice("test", pointers);  // nothing is newer
    EmulatedCuda::Counters after = Now();
    EXPECT_EQ(after.copies - before.copies, 1);
    EXPECT_EQ(after.copied_together - before.copied_together, 5);
    ExpectThere(arrays);
  }
}

// The parts of one array, and both at once: each byte once.
TEST(UploadsOnCuda, ViewsOfOneBuffer) {
  const std::vector<NDArray> arrays = WrittenOnHost(2);
  const NDArray first = arrays[0].Slice(0, 0, 4), rest = arrays[0].Slice(0, 4, 10);
  const EmulatedCuda::Counters before = Now();
  SendToDevice("test", {&first, &arrays[1], &rest, &arrays[0], &first});
  const EmulatedCuda::Counters after = Now();
  EXPECT_LE(after.copies - before.copies, 2);
  ExpectThere(arrays);
}

TEST(UploadsOnCuda, OneByOneWhereTheDriverHasNoOtherWay) {
  EmulatedCuda::Get().set_copies_together(false);
  const std::vector<NDArray> arrays = WrittenOnHost(3);
  const EmulatedCuda::Counters before = Now();
  SendToDevice("test", PointersTo(arrays));
  const EmulatedCuda::Counters after = Now();
  EmulatedCuda::Get().set_copies_together(true);
  EXPECT_EQ(after.copies - before.copies, 3);
  EXPECT_EQ(after.copied_together, before.copied_together);
  ExpectThere(arrays);
}

// Whichever call of the driver's fails, the host's values are still the newer ones, and the next use sends them.
TEST(UploadsOnCuda, AFailedUploadIsDoneAgain) {
  EmulatedCuda& emulated = EmulatedCuda::Get();
  int failures = 0;
  for (const bool together : {true, false}) {
    emulated.set_copies_together(together);
    for (int call = 0; call < 8; ++call) {
      SCOPED_TRACE(call);
      const std::vector<NDArray> arrays = WrittenOnHost(3);
      emulated.call_faults().FailRequest(call);
      try {
        SendToDevice("test", PointersTo(arrays));
      } catch (const Error&) {
        ++failures;
      }
      emulated.call_faults().Clear();
      ExpectThere(arrays);
    }
  }
  emulated.set_copies_together(true);
  EXPECT_GE(failures, 4);
}

// Each device's kernels come behind its own copies.
TEST(UploadsOnCuda, ArraysOfSeveralDevices) {
  const Device devices[] = {kDevice, {DeviceType::kCuda, 1}};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    std::vector<NDArray> arrays;
    for (int a = 0; a < 4; ++a) {
      arrays.push_back(Full({93}, 1, DType::kFloat32, Place::On(devices[a % 2])));
      arrays.back().mutable_data<float>()[1] = static_cast<float>(a + 2);
    }
    SendToDevice("test", PointersTo(arrays));
    for (int a = 0; a < 4; ++a) {
      ASSERT_EQ(Add(arrays[a], arrays[a]).At<float>({1}), 2 * static_cast<float>(a + 2))
          << "array " << a << ", seed " << seed;
    }
  }
}

TEST(UploadsOnCuda, AClosedArrayIsAnError) {
  std::vector<NDArray> arrays = WrittenOnHost(2);
  const NDArray closed = arrays[1];
  arrays[1].Close();
  EXPECT_THROW(SendToDevice("test", {&arrays[0], &closed}), Error);
}

}  // namespace
}  // namespace tidepool
