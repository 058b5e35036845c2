// Free blocks by size: the smallest that is large enough, in time bounded by the bits of a size.
//
// A bitwise trie for each power of two (Lea, "A Memory Allocator": the tree bins of dlmalloc). What
// lies below a node shares the leading bits of its size with it; blocks of one size hang behind one
// another. The links are in the blocks' records, so nothing here allocates or fails. Threads: one
// at a time.
#ifndef TIDEPOOL_MEMORY_RESOURCE_FIT_TREE_H_
#define TIDEPOOL_MEMORY_RESOURCE_FIT_TREE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidepool {

// Base of the records. `size` may not change while it is in a tree.
struct FitNode {
  size_t size = 0;  // more than 0
  // The tree's own.
  FitNode** link = nullptr;  // what points here; null: behind another of its size
  FitNode* children[2] = {};
  FitNode* next = nullptr;  // ring of those of one size
  FitNode* previous = nullptr;
};

class FitTree {
 public:
  FitTree() = default;
  FitTree(const FitTree&) = delete;
  FitTree& operator=(const FitTree&) = delete;

  void Insert(FitNode* node) noexcept;
  void Remove(FitNode* node) noexcept;
  // Remove, another size, Insert; of the only one of its power of two some instructions.
  void Resize(FitNode* node, size_t size) noexcept {
    const bool alone = node->next == node && node->children[0] == nullptr &&
                       node->children[1] == nullptr &&
                       node->link == &roots_[std::bit_width(size) - 1];
    if (alone) {
      node->size = size;
      return;
    }
    Remove(node);
    node->size = size;
    Insert(node);
  }
  // Those in it are in no tree any more.
  void Clear() noexcept;
  // Null: none is of at least that size. It stays in the tree.
  FitNode* BestFit(size_t size) const noexcept;
  // The largest size in it; 0 when empty.
  size_t Largest() const noexcept;

 private:
  static constexpr int kLevels = 64;
  static void Replace(FitNode* node, FitNode* by) noexcept;

  uint64_t levels_in_use_ = 0;  // bits
  FitNode* roots_[kLevels] = {};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_FIT_TREE_H_
