// Random operations on the tree of owners against a simple model of its rules: every array is alive
// or freed exactly as the model says, every node counts what the model counts. Printed seed;
// TIDEPOOL_MODEL_SEED and TIDEPOOL_MODEL_OPERATIONS change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/test_buffers.h"

namespace tidepool {
namespace {

uint64_t Environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr int kHandles = -1;

// What the rules say.
struct ModelArray {
  BufferHandle handle;
  bool alive = true;
  int owner = kHandles;  // index of a node
  bool owner_gone = false;
  std::vector<int> borrowers;  // the top one last
};

class Model {
 public:
  Model(uint64_t seed, BufferKind kind, Ownership& parent) : random_(seed), source_(kind) {
    for (int i = 0; i < kNodes; ++i) {
      parents_.push_back(-1);
      caps_.push_back(0);
      open_.push_back(true);
      nodes_.push_back(parent.NewChild("base"));
    }
  }

  void Run(uint64_t operations) {
    for (uint64_t i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      Step();
      if (i % 64 == 0) CheckAll();
    }
    for (int n = 0; n < kNodes; ++n) CloseNode(n);
    CheckAll();
    arrays_.clear();
    EXPECT_EQ(source_.releases(), imported_);
  }

 private:
  static constexpr int kNodes = 24;
  static constexpr int kArrays = 48;

  int Random(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool IsBelow(int node, int top) const {
    for (; node >= 0; node = parents_[static_cast<size_t>(node)]) {
      if (node == top) return true;
    }
    return false;
  }
  ModelArray* AnyArray() {
    if (arrays_.empty()) return nullptr;
    return &arrays_[static_cast<size_t>(Random(static_cast<int>(arrays_.size())))];
  }

  void Step() {
    const int node = Random(kNodes);
    Ownership& owner = nodes_[static_cast<size_t>(node)];
    const bool open = open_[static_cast<size_t>(node)];
    const bool capped = caps_[static_cast<size_t>(node)] > 0;
    ModelArray* array = AnyArray();
    const int operation = Random(14);
    if (!owner && operation != 10) return;
    switch (operation) {
      case 0:
      case 1:
      case 2:
        return Make(node, open && !capped);
      case 3:
      case 4: {
        if (array == nullptr) return;
        const bool fits = array->alive && open && (!capped || array->owner == node);
        EXPECT_EQ(Works([&] { owner.Attach(array->handle); }), fits);
        if (!fits) return;
        array->owner = node;
        array->owner_gone = false;
        array->borrowers.clear();
        return;
      }
      case 5: {
        if (array == nullptr) return;
        owner.Detach(array->handle);
        const bool lent = Contains(array->borrowers, node);
        if (!array->alive || (array->owner != node && !lent)) return;
        array->owner = kHandles;
        array->owner_gone = false;
        array->borrowers.clear();
        return;
      }
      case 6:
      case 7: {
        if (array == nullptr) return;
        const bool fits = array->alive && open;
        EXPECT_EQ(Works([&] { owner.Lend(array->handle); }), fits);
        if (fits) LendTo(array, node);
        return;
      }
      case 8:
        return ReturnFrom(node, array);
      case 9:
        if (Random(2) == 0 && open) {
          owner.Cap();
          ++caps_[static_cast<size_t>(node)];
        } else if (capped) {
          owner.Uncap();
          --caps_[static_cast<size_t>(node)];
        }
        return;
      case 10:
        return Random(3) == 0 ? CloseNode(node) : Reopen(node);
      case 11:
        if (array == nullptr) return;
        std::swap(*array, arrays_.back());
        Drop(arrays_.back());
        arrays_.pop_back();
        return;
      case 12:
        if (array == nullptr) return;
        array->handle->Close();
        Die(array);
        return;
      case 13:
        return MoveAll(node, open, capped);
    }
  }

  template <typename F>
  static bool Works(F function) {
    try {
      function();
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  static bool Contains(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  static void LendTo(ModelArray* array, int node) {
    if (array->owner == node) return;
    std::erase(array->borrowers, node);
    array->borrowers.push_back(node);
  }
  void Die(ModelArray* array) {
    array->alive = false;
    array->owner = kHandles;
    array->owner_gone = false;
    array->borrowers.clear();
  }
  void Drop(ModelArray& array) { array.handle = BufferHandle(); }

  void Make(int node, bool fits) {
    if (arrays_.size() == kArrays) return;
    ModelArray array;
    const int64_t releases = source_.releases();
    array.handle = source_.New(static_cast<size_t>(1 + Random(300)));
    if (!array.handle->attached && array.handle->outside.release_imported != nullptr) ++imported_;
    if (Random(3) > 0) {
      EXPECT_EQ(LinkNew(array.handle.get(), nodes_[static_cast<size_t>(node)].ref().bits()), fits);
      if (fits) array.owner = node;
    }
    EXPECT_EQ(source_.releases(), releases);
    arrays_.push_back(std::move(array));
  }

  void ReturnFrom(int node, ModelArray* array) {
    if (array == nullptr) return;
    const auto n = static_cast<size_t>(node);
    const int parent = parents_[n];
    const bool lent = array->owner != node && Contains(array->borrowers, node);
    const bool parent_takes =
        parent < 0 || array->owner == parent || caps_[static_cast<size_t>(parent)] == 0;
    const bool fits = array->alive && open_[n] && (lent || parent_takes);
    EXPECT_EQ(Works([&] { nodes_[n].Return(array->handle); }), fits);
    if (!fits) return;
    if (lent) {
      std::erase(array->borrowers, node);
      if (array->borrowers.empty() && array->owner_gone) Die(array);
      return;
    }
    array->owner = parent < 0 ? kHandles : parent;
    array->owner_gone = false;
    array->borrowers.clear();
  }

  void MoveAll(int node, bool open, bool capped) {
    std::vector<const BufferHandle*> handles;
    std::vector<ModelArray*> moved;
    bool fits = open;
    for (int i = Random(5); i > 0; --i) {
      ModelArray* array = AnyArray();
      if (array == nullptr) break;
      handles.push_back(&array->handle);
      moved.push_back(array);
      fits = fits && array->alive;
    }
    const bool lends = Random(2) == 0;
    for (const ModelArray* array : moved) {
      if (!lends) fits = fits && (!capped || array->owner == node);
    }
    Ownership& owner = nodes_[static_cast<size_t>(node)];
    EXPECT_EQ(Works([&] { lends ? owner.LendAll(handles) : owner.AttachAll(handles); }), fits);
    if (!fits) return;
    for (ModelArray* array : moved) {
      if (lends) {
        LendTo(array, node);
      } else {
        array->owner = node;
        array->owner_gone = false;
        array->borrowers.clear();
      }
    }
  }

  // All below it, children first.
  void CloseNode(int top) {
    if (!open_[static_cast<size_t>(top)]) {
      if (nodes_[static_cast<size_t>(top)]) nodes_[static_cast<size_t>(top)].Close();
      return;
    }
    if (Random(2) == 0) {
      nodes_[static_cast<size_t>(top)].Close();
    } else {
      nodes_[static_cast<size_t>(top)] = Ownership();  // the destructor
    }
    std::vector<int> below;
    for (int n = 0; n < kNodes; ++n) {
      if (open_[static_cast<size_t>(n)] && IsBelow(n, top)) below.push_back(n);
    }
    // Deepest first; what the order among equals is makes no difference to who lives.
    std::sort(below.begin(), below.end(), [&](int a, int b) { return Depth(a) > Depth(b); });
    for (const int n : below) {
      open_[static_cast<size_t>(n)] = false;
      for (ModelArray& array : arrays_) {
        if (std::erase(array.borrowers, n) > 0 && array.borrowers.empty() && array.owner_gone) {
          Die(&array);
        }
        if (array.owner != n) continue;
        if (array.borrowers.empty()) {
          Die(&array);
        } else {
          array.owner = kHandles;
          array.owner_gone = true;
        }
      }
    }
  }
  int Depth(int node) const {
    int depth = 0;
    for (; node >= 0; node = parents_[static_cast<size_t>(node)]) ++depth;
    return depth;
  }

  // A closed one is made anew, below any other that is open.
  void Reopen(int node) {
    const auto n = static_cast<size_t>(node);
    if (open_[n]) return;
    const int parent = Random(kNodes);
    const auto p = static_cast<size_t>(parent);
    if (!open_[p]) {
      EXPECT_FALSE(Works([&] { nodes_[p].NewChild("never"); }));
      return;
    }
    // Children of the closed one have no parent any more; they are closed too.
    for (int c = 0; c < kNodes; ++c) {
      if (parents_[static_cast<size_t>(c)] == node) parents_[static_cast<size_t>(c)] = -1;
    }
    nodes_[n] = nodes_[p].NewChild("child");
    parents_[n] = parent;
    open_[n] = true;
    caps_[n] = 0;
  }

  void CheckAll() {
    std::vector<int64_t> arrays(kNodes), bytes(kNodes), loans(kNodes);
    for (const ModelArray& array : arrays_) {
      ASSERT_EQ(array.handle->IsAlive(), array.alive);
      ASSERT_EQ(array.handle->closed.load() != Buffer::kNotClosed, !array.alive);
      if (array.owner >= 0) {
        ++arrays[static_cast<size_t>(array.owner)];
        bytes[static_cast<size_t>(array.owner)] += static_cast<int64_t>(array.handle->bytes);
      }
      for (const int n : array.borrowers) ++loans[static_cast<size_t>(n)];
      if (!array.alive) continue;
      const int current = !array.borrowers.empty() ? array.borrowers.back() : array.owner;
      ASSERT_EQ(CurrentNodeOf(*array.handle.get()),
                current >= 0 ? nodes_[static_cast<size_t>(current)].ref().bits() : 0);
    }
    for (int n = 0; n < kNodes; ++n) {
      const Ownership& node = nodes_[static_cast<size_t>(n)];
      ASSERT_EQ(node.is_open(), open_[static_cast<size_t>(n)]);
      ASSERT_EQ(node.arrays(), arrays[static_cast<size_t>(n)]);
      ASSERT_EQ(node.bytes(), bytes[static_cast<size_t>(n)]);
      ASSERT_EQ(node.loans(), loans[static_cast<size_t>(n)]);
    }
  }

  std::mt19937_64 random_;
  BufferSource source_;
  std::vector<Ownership> nodes_;
  std::vector<int> parents_, caps_;
  std::vector<bool> open_;
  std::vector<ModelArray> arrays_;
  int64_t imported_ = 0;
};

class OwnershipModelTest : public ::testing::TestWithParam<BufferKind> {};

TEST_P(OwnershipModelTest, AgreesWithTheModel) {
  const uint64_t seed = Environment("TIDEPOOL_MODEL_SEED", std::random_device{}());
  const uint64_t operations = Environment("TIDEPOOL_MODEL_OPERATIONS", 300000);
  std::printf("seed %llu, %llu operations\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(operations));
  Ownership root = Ownership::NewRoot("model");
  Model(seed, GetParam(), root).Run(operations);
}

INSTANTIATE_TEST_SUITE_P(Places, OwnershipModelTest,
                         ::testing::Values(BufferKind::kHeap, BufferKind::kImported,
                                           BufferKind::kWorkspace, BufferKind::kPool,
                                           BufferKind::kMapped, BufferKind::kRingSlot,
                                           BufferKind::kMixed),
                         [](const auto& info) { return NameOf(info.param); });

// Four threads, each with a model of its own: they share the root's list of children, the loans'
// mutex and the store of nodes.
TEST(OwnershipModelThreadsTest, FourThreadsAgreeWithTheirModels) {
  const uint64_t seed = Environment("TIDEPOOL_MODEL_SEED", std::random_device{}());
  const uint64_t operations = Environment("TIDEPOOL_MODEL_OPERATIONS", 300000) / 4;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Ownership root = Ownership::NewRoot("model");
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { Model(seed + t, BufferKind::kMixed, root).Run(operations); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tidepool
