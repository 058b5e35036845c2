#include "tidepool/ndarray/manager/conformance/djl_places.h"

#include <algorithm>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"

namespace tidepool::djl {
namespace {

void CountRelease(void* count) { ++*static_cast<int64_t*>(count); }

}  // namespace

DjlPlaces::DjlPlaces() : kind_(GetParam()), root_(NDManager::NewRoot("djl")) {
  const std::string id = "djl_" + NameOf(kind_);
  std::optional<WorkspaceConfig> config;
  switch (kind_) {
    case Kind::kHeap:
      break;
    case Kind::kWorkspace:
    case Kind::kCycle:
      config = WorkspaceConfig::Training();
      break;
    case Kind::kPool:
      config.emplace();
      config->debug_mode = DebugMode::kSpillEverything;
      config->policy_spill = SpillPolicy::kReallocate;
      break;
    case Kind::kMapped:
      config = WorkspaceConfig::MappedFile(::testing::TempDir() + "/djl_" +
                                           std::to_string(reinterpret_cast<uintptr_t>(this)));
      config->initial_size = 1 << 20;
      break;
    case Kind::kRingSlot:
      ring_ = std::make_unique<RingWorkspace>(id, WorkspaceConfig::Ring(2));
      slot_.emplace(*ring_);
      break;
    case Kind::kImported:
      memory_.resize(4 * kMostImported);
      break;
  }
  if (config.has_value()) workspace_ = std::make_unique<Workspace>(id, *config);
  if (kind_ == Kind::kCycle) {
    top_ = root_.NewCycleManager("top", *workspace_);
  } else if (workspace_ != nullptr) {
    scope_ = std::make_unique<WorkspaceScope>(*workspace_);
    top_ = root_.NewSubManager("top", *workspace_);
  } else {
    top_ = root_.NewSubManager("top");
  }
}

DjlPlaces::~DjlPlaces() {
  top_ = NDManager();
  scope_.reset();
  slot_.reset();
}

void DjlPlaces::TearDown() {
  top_.Close();
  EXPECT_EQ(released_, imported_);
}

NDArray DjlPlaces::Import(float value) {
  if (imported_ == kMostImported) ADD_FAILURE() << "too many imported arrays for one test";
  float* data = &memory_[static_cast<size_t>(4 * imported_++)];
  std::fill_n(data, 4, value);
  return NDArray(BufferHandle(NewImportedBuffer(data, 16, &CountRelease, &released_)), {4},
                 DType::kFloat32);
}

NDArray DjlPlaces::In(const NDManager& manager, float value) {
  if (kind_ != Kind::kImported) return manager.Full({4}, value);
  NDArray array = Import(value);
  const_cast<NDManager&>(manager).Attach(array);
  return array;
}

NDArray DjlPlaces::Loose(float value) {
  if (kind_ == Kind::kImported) return Import(value);
  return Full({4}, value, DType::kFloat32, Place::Scratch());
}

bool Alive(const NDArray& array) { return array.is_defined() && array.IsInScope(); }

bool Holds(const NDArray& array, float value) {
  return Alive(array) && array.ToVector<float>() == std::vector<float>(4, value);
}

std::string ErrorOf(absl::FunctionRef<void()> call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return std::string(error.message());
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void ExpectRefused(const NDManager& below, absl::FunctionRef<void()> call) {
  const OwnershipSnapshot before = below.Snapshot();
  EXPECT_NE(ErrorOf(call), "");
  EXPECT_EQ(ToString(Diff(before, below.Snapshot())), "");
}

}  // namespace tidepool::djl
