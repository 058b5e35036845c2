// What the conformance tests of DJL's numbered memory behaviour share: each runs on every kind of
// memory an array can be in, as whose an array is and where its bytes are are independent.
#ifndef TIDEPOOL_NDARRAY_MANAGER_CONFORMANCE_DJL_PLACES_H_
#define TIDEPOOL_NDARRAY_MANAGER_CONFORMANCE_DJL_PLACES_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::djl {

enum class Kind { kHeap, kWorkspace, kCycle, kPool, kRingSlot, kMapped, kImported };

inline std::string NameOf(Kind kind) {
  static const char* const kNames[] = {"Heap",     "Workspace", "Cycle",   "Pool",
                                       "RingSlot", "Mapped",    "Imported"};
  return kNames[static_cast<int>(kind)];
}

// Four floats per array, 16 bytes.
class DjlPlaces : public ::testing::TestWithParam<Kind> {
 protected:
  DjlPlaces();
  ~DjlPlaces() override;
  // Imported memory went back as often as it was handed in, once everything is closed.
  void TearDown() override;

  // Managers of the tests are below this one; in the cycle's case it has the cycle.
  NDManager& top() { return top_; }
  NDManager New(std::string_view name) { return top_.NewSubManager(name); }
  // Not related to top(): below the root of the process.
  static NDManager NewUnrelated(std::string_view name) {
    return NDManager::NewBaseManager(Host(), name);
  }

  NDArray In(const NDManager& manager, float value = 1);  // the manager's, of the kind of memory
  NDArray Loose(float value = 1);                         // its handles'

 private:
  static constexpr int kMostImported = 4096;
  NDArray Import(float value);

  Kind kind_;
  std::vector<float> memory_;
  int64_t imported_ = 0, released_ = 0;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<WorkspaceScope> scope_;
  std::unique_ptr<RingWorkspace> ring_;
  std::optional<RingSlotScope> slot_;
  NDManager root_, top_;
};

bool Alive(const NDArray& array);
// Alive and with these four values.
bool Holds(const NDArray& array, float value);
// The message of the Error of that code; else a failure.
std::string ErrorOf(absl::FunctionRef<void()> call,
                    absl::StatusCode code = absl::StatusCode::kFailedPrecondition);
// What `call` throws is a misuse, and whatever arrays there are below the manager stay.
void ExpectRefused(const NDManager& below, absl::FunctionRef<void()> call);

#define TIDEPOOL_ON_EVERY_PLACE(Suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      Places, Suite,                                                                               \
      ::testing::Values(Kind::kHeap, Kind::kWorkspace, Kind::kCycle, Kind::kPool, Kind::kRingSlot, \
                        Kind::kMapped, Kind::kImported),                                           \
      [](const auto& info) { return NameOf(info.param); })

}  // namespace tidepool::djl

#endif  // TIDEPOOL_NDARRAY_MANAGER_CONFORMANCE_DJL_PLACES_H_
