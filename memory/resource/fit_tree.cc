#include "tidepool/memory/resource/fit_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tidepool {
namespace {

int LevelOf(size_t size) { return std::bit_width(size) - 1; }

// The smaller of `best` and the nodes on the way to the smallest size below `node`.
FitNode* Smallest(FitNode* node, FitNode* best) {
  while (node != nullptr) {
    if (best == nullptr || node->size < best->size) best = node;
    node = node->children[node->children[0] == nullptr];
  }
  return best;
}

}  // namespace

void FitTree::Insert(FitNode* node) noexcept {
  const size_t size = node->size;
  int bit = LevelOf(size);
  levels_in_use_ |= uint64_t{1} << bit;
  FitNode** link = &roots_[bit];
  while (*link != nullptr && (*link)->size != size) {
    link = &(*link)->children[size >> --bit & 1];
  }
  node->children[0] = node->children[1] = nullptr;
  if (FitNode* const same = *link; same != nullptr) {
    node->link = nullptr;
    node->next = same->next;
    node->previous = same;
    same->next->previous = node;
    same->next = node;
  } else {
    *link = node;
    node->link = link;
    node->next = node->previous = node;
  }
}

// Puts `by` where `node` is in the trie.
void FitTree::Replace(FitNode* node, FitNode* by) noexcept {
  *node->link = by;
  by->link = node->link;
  for (int i = 0; i < 2; ++i) {
    by->children[i] = node->children[i];
    if (by->children[i] != nullptr) by->children[i]->link = &by->children[i];
  }
}

void FitTree::Remove(FitNode* node) noexcept {
  if (node->next != node) {
    if (node->link != nullptr) Replace(node, node->next);
    node->previous->next = node->next;
    node->next->previous = node->previous;
    return;
  }
  // Any leaf below has the leading bits that its place asks for.
  FitNode* leaf = node;
  while (leaf->children[0] != nullptr || leaf->children[1] != nullptr) {
    leaf = leaf->children[leaf->children[1] != nullptr];
  }
  *leaf->link = nullptr;
  if (leaf != node) Replace(node, leaf);
  const int level = LevelOf(node->size);
  if (roots_[level] == nullptr) levels_in_use_ &= ~(uint64_t{1} << level);
}

void FitTree::Clear() noexcept {
  for (; levels_in_use_ != 0; levels_in_use_ &= levels_in_use_ - 1) {
    roots_[std::countr_zero(levels_in_use_)] = nullptr;
  }
}

FitNode* FitTree::BestFit(size_t size) const noexcept {
  int bit = LevelOf(size);
  const uint64_t above = bit == kLevels - 1 ? 0 : levels_in_use_ >> (bit + 1) << (bit + 1);
  FitNode* best = nullptr;
  FitNode* larger = nullptr;  // the last subtree passed by, whose sizes are all larger
  for (FitNode* node = roots_[bit]; node != nullptr;) {
    if (node->size == size) return node->next;  // another of that size is removed at less cost
    if (node->size > size && (best == nullptr || node->size < best->size)) best = node;
    const size_t side = size >> --bit & 1;
    if (side == 0 && node->children[1] != nullptr) larger = node->children[1];
    node = node->children[side];
  }
  best = Smallest(larger, best);
  if (best == nullptr && above != 0) best = Smallest(roots_[std::countr_zero(above)], nullptr);
  return best == nullptr ? nullptr : best->next;
}

size_t FitTree::Largest() const noexcept {
  if (levels_in_use_ == 0) return 0;
  size_t largest = 0;
  for (const FitNode* node = roots_[LevelOf(levels_in_use_)]; node != nullptr;) {
    largest = std::max(largest, node->size);
    node = node->children[node->children[1] != nullptr];
  }
  return largest;
}

}  // namespace tidepool
