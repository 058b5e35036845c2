// Gradients by the memory they are gradients of: each buffer has a shadow, and the gradient of a view is the same view of it.
//
// So views, slices and writes in place need no records of their own: a view that is read adds to its part of the shadow, and a
// part that is written takes what was added to it away, as what lay there before was another value. A shadow is in pieces, the
// gradients that came first, for as long as all that comes is of their views or beside them (parameters in one flat array);
// only then it is made as long as its buffer.
//
// Threads: one.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_SHADOW_MEMORY_H_
#define TIDEPOOL_NDARRAY_GRADIENT_SHADOW_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tidepool/ndarray/gradient/place_index.h"
#include "tidepool/ndarray/gradient/places.h"
#include "tidepool/ndarray/gradient/taped_view.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class BackwardPlacement;

struct GradientPiece {
  NDArray gradient;        // undefined: none
  bool relu_done = false;  // it has gone through the ReLU that the value came from
};

class ShadowMemory {
 public:
  // Adds `gradient`, of the view's shape and type, to its part. Takes the memory of one that nobody else has; of
  // `own`, whoever has it. `elements`: of the buffer. Elements that the view repeats are added up; a view without any has no part.
  void Add(const TapedView& view, int64_t elements, NDArray gradient, bool relu_done = false,
           const NDArray* own = nullptr);
  // What was added to the view's part, which is taken away.
  GradientPiece Take(const TapedView& view, int64_t elements);
  // The same and it stays. `is_final`: who has it sees it as it is; what is added later goes elsewhere.
  NDArray Peek(const TapedView& view, int64_t elements, bool is_final = false);
  // Whether anything was added to that part.
  bool Has(const TapedView& view);
  // Nothing was added to any of it, or all was taken.
  bool IsEmpty(uint32_t slot) { return Find(slot) == nullptr || Find(slot)->IsEmpty(); }
  // The gradient of a whole buffer that has none yet, as one axis, every element of it written; takes it.
  void SetWhole(uint32_t slot, NDArray whole);
  // The view's part of that.
  static NDArray PartOf(const NDArray& whole, const TapedView& view);
  // Whether gradients that nobody else has may be written over. Not where a tape around this one records what is done with them.
  void set_may_write_over(bool may) { may_write_over_ = may; }
  // What the placement says of gradients that do not outlive a part is done.
  void MoveOutOfPart(BackwardPlacement& placement);
  void Clear();
  // How many parts that were taken it has looked at, for tests.
  int64_t compared() const;

 private:
  struct Piece {
    FreeView where;
    NDArray gradient;
    bool relu_done = false;
    bool is_own = false;  // it may be written to, whoever has it
  };
  // Parts of a whole buffer's gradient that were taken: they count as 0. None overlaps another.
  class DeadParts {
   public:
    struct Part {
      FreeView view;
      Places where;
      size_t number = 0;  // among the parts
    };
    void Add(const TapedView& view);
    // One that may have elements at that place; null: none has.
    Part* Find(const Places& where) const {
      return used_ > 0 ? index_.FindOverlapping(where) : nullptr;
    }
    void Remove(Part& part);
    // Keeps the memory.
    void Clear();
    int64_t elements() const { return elements_; }  // of all
    int64_t compared() const { return index_.compared(); }

   private:
    std::vector<std::unique_ptr<Part>> parts_;  // of which the first `used_` are some
    size_t used_ = 0;
    PlaceIndex<Part> index_;
    int64_t elements_ = 0;
  };
  using Pieces = std::map<int64_t, Piece>;  // by where they begin; none overlaps another
  struct Shadow {
    Pieces pieces;
    NDArray full;  // instead: the whole buffer's, as one axis
    DeadParts dead;
    bool IsEmpty() const { return pieces.empty() && !full.is_defined(); }
  };
  Shadow* Find(uint32_t slot) { return slot < shadows_.size() ? &shadows_[slot] : nullptr; }
  // The piece of the very view, or null; `overlaps`: whether others share elements with it.
  static Pieces::iterator FindPiece(Shadow& shadow, const TapedView& view, bool* overlaps);
  void MakeFull(Shadow& shadow, int64_t elements);
  Piece& NewPiece(Shadow& shadow, int64_t begin);
  void Erase(Shadow& shadow, Pieces::iterator piece);
  void Revive(Shadow& shadow, const TapedView& view);
  static NDArray ViewOfFull(const Shadow& shadow, const TapedView& view) {
    return PartOf(shadow.full, view);
  }

  bool may_write_over_ = true;
  bool is_clear_ = true;         // since Clear() nothing was added
  std::vector<Shadow> shadows_;  // by slot
  // Of pieces that are gone, for those to come: a tape that is used again takes no memory for them.
  std::vector<Pieces::node_type> spare_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_SHADOW_MEMORY_H_
