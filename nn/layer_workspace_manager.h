// Where the arrays of a network's layers live, by what they are for.
//
// Layers name no workspace: they make arrays in the current place, and the network sets that around
// each call. This is who decides it, for each WorkspaceMode, and what a layer that wants to say it
// can ask:
//
//   kNone      the heap.
//   kSingle    everything in the one workspace of the step or the request, one behind the other,
//              until that ends.
//   kEnabled   likewise in one, where lifetimes decide: all types are shared memory, and nothing
//              is copied.
//   kSeparate  by type (below). What kernels need while they run, and what is made for a layer's
//              gradients and ends with them, is reset after each layer; what goes from layer to
//              layer alternates between workspaces.
//
//   type                        training, kSeparate              inference, kSeparate
//   input                       the step's workspace             the request's workspace
//   activations                 the step's workspace             activations 1, 2, ... in turn
//   activation gradients        gradients 1, 2, ... in turn      -
//   forward, backward working   working, reset after each layer  working, reset after each layer
//   recurrent loops             as working: loops are within kernels, likewise
//   updater working, cache      the step's workspace             the request's workspace
//
// What a tape keeps for gradients is an activation: it was made by a layer's forward call, all of
// whose results are in the step's workspace. A workspace is taken again once nothing that was made
// in it is there, so a value that skips layers keeps one, and there are as many as values are alive
// at once: two for a chain. A gradient that was made among a layer's working memory and is needed
// by others is copied out at the layer's end; most are made in their place.
//
// Ownership: the workspace it is made of outlives it. Threads: one at a time, that of the call.
// Cost: a layer some hundred nanoseconds under kSeparate, a comparison else.
#ifndef TIDEPOOL_NN_LAYER_WORKSPACE_MANAGER_H_
#define TIDEPOOL_NN_LAYER_WORKSPACE_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
class BackwardPlacement;
class GradientTape;
}  // namespace tidepool

namespace tidepool::nn {

// What an array of a step or request is for; docs/training.md says where each is made in which mode.
enum class ArrayType : uint8_t {
  kInput,
  kActivations,
  kActivationGradients,
  kForwardWorkingMemory,
  kBackwardWorkingMemory,
  kRecurrentForwardLoop,
  kRecurrentBackwardLoop,
  kUpdaterWorkingMemory,
  kForwardCache,
};
inline constexpr int kArrayTypes = 9;       // how many there are
const char* ArrayTypeName(ArrayType type);  // "activation gradients"

// What a layer's calls took in one step or request, in bytes of requests. For reports.
struct LayerUse {
  std::string layer;                // its name in the network
  int64_t bytes[kArrayTypes] = {};  // by ArrayType
};

class LayerWorkspaceManager {
 public:
  // Of which kind of pass.
  enum class Phase : uint8_t { kTraining, kInference };

  // Everything on the device's heap.
  static LayerWorkspaceManager NoWorkspaces(Device device = Host());
  // `main`: of the step or the request. `others`: the configuration of those that kSeparate makes
  // beside it (without an initial size, which is the main one's), which are called as `main` and
  // their purpose and made when they are first needed.
  LayerWorkspaceManager(Workspace& main, WorkspaceMode mode, Phase phase,
                        const WorkspaceConfig& others);
  ~LayerWorkspaceManager();
  LayerWorkspaceManager(LayerWorkspaceManager&&) noexcept;
  LayerWorkspaceManager& operator=(LayerWorkspaceManager&&) noexcept;

  // The configuration of `main`, called `id`, for a mode: `given`, or one that suits it. Throws
  // kInvalidArgument with all reasons why it cannot be.
  static WorkspaceConfig ConfigOf(WorkspaceMode mode, const std::optional<WorkspaceConfig>& given,
                                  const std::string& id, Device device);

  WorkspaceMode mode() const { return mode_; }  // as constructed
  // Where arrays of that type are made now. Making one throws kFailedPrecondition where the
  // workspace is not open: outside of a step or request, and of a layer for what is reset after
  // each.
  Place PlaceOf(ArrayType type) const;
  NDArray Create(ArrayType type, const Shape& shape, DType dtype = DType::kFloat32) const;  // Empty
  // The array itself where it is there already; on the heap too, as it lives longer there; else a
  // copy.
  NDArray LeverageTo(ArrayType type, const NDArray& array) const;
  NDArray Dup(ArrayType type, const NDArray& array) const;
  // Throws kFailedPrecondition, naming layer, type and place, for an array that is gone, or is in
  // the place of another type: kSeparate has one for each line of the table above, the other modes
  // one for all. The caller's and the heap's arrays may stand for any type, and an input, or a view
  // of one, for activations.
  void Validate(ArrayType type, const NDArray& array, absl::string_view layer) const;

  // Those there are now, `main` first.
  std::vector<const Workspace*> workspaces() const;

  // ---- for the executor ----

  // A step or request, in an open cycle of `main`. All it opens is closed at its end.
  class [[nodiscard]] Call {
   public:
    // `tape`: the one that records the step, or null.
    Call(LayerWorkspaceManager& manager, GradientTape* tape);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    LayerWorkspaceManager& manager_;
    const int exceptions_;
  };

  // The forward call of a layer. A null manager: nothing is done. `number`: different for each
  // layer; 0: of what is computed outside of layers, the loss.
  class [[nodiscard]] Layer {
   public:
    Layer(LayerWorkspaceManager* manager, int number, absl::string_view name);
    ~Layer();
    // The layer is done: checks its output. `mask`: of it, which layers behind it read as well.
    void Finish(const NDArray& output, const NDArray& mask = NDArray());
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;

   private:
    LayerWorkspaceManager* const manager_;
    const absl::string_view name_;
  };

  // From here on calls add what layers take; null: no longer.
  void set_uses(std::vector<LayerUse>* uses) { uses_ = uses; }
  // Gives back what the next call does not need.
  void Trim();

 private:
  struct Separate;
  LayerWorkspaceManager();

  Workspace* main_ = nullptr;  // null: the heap
  Device device_;
  WorkspaceMode mode_ = WorkspaceMode::kNone;
  std::vector<LayerUse>* uses_ = nullptr;
  std::unique_ptr<Separate> separate_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYER_WORKSPACE_MANAGER_H_
