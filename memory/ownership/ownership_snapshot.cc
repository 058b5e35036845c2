#include "tidepool/memory/ownership/ownership_snapshot.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/ownership/owner_traces.h"

namespace tidepool {
namespace {

// A node to visit: it may be gone when its turn comes.
struct Visit {
  uint64_t ref;
  int depth;
  std::string parent_path;
};

void CountArrays(const Buffer* newest, bool list, OwnerStats* stats) {
  for (const Buffer* buffer = newest; buffer != nullptr; buffer = buffer->link.older.get()) {
    if (!buffer->IsAlive()) continue;  // its cycle is over; a handle is left
    ++stats->arrays;
    stats->bytes += static_cast<int64_t>(buffer->bytes);
    if (list) {
      stats->owned.push_back({buffer->id, static_cast<int64_t>(buffer->bytes), false, ""});
    }
  }
}

std::string PlaceOf(NodePlace place, WorkspaceRef workspace) {
  switch (place) {
    case NodePlace::kCurrent:
      return "current";
    case NodePlace::kHeap:
      return "heap";
    case NodePlace::kWorkspace:
      return absl::StrCat("workspace ", workspace.Describe());
  }
  return "";
}

// False when the node is gone. `children`: the newest last.
bool Look(const Visit& visit, bool list, OwnerStats* stats, std::vector<Visit>* children) {
  OwnerNode* node = NodeOf(visit.ref);
  if (node == nullptr) return false;
  std::vector<uint64_t> refs;
  NodePlace place;
  WorkspaceRef workspace;
  {
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != visit.ref ||
        node->state.load(std::memory_order_relaxed) != NodeState::kOpen) {
      return false;
    }
    stats->name = node->name;
    stats->id = visit.ref;
    stats->device = node->device;
    place = node->place;
    workspace = node->workspace;
    CountArrays(node->newest.get(), list, stats);
    CountArrays(node->newest_in_cycle.get(), list, stats);
    stats->peak_bytes = node->peak_bytes.get();
    stats->resources = node->resources;
    stats->capped = node->caps.load(std::memory_order_relaxed) > 0;
    stats->age_seconds = static_cast<double>(internal::CoarseNow() - node->opened_ns) * 1e-9;
    stats->budget_bytes = node->budget != nullptr ? node->budget->limit_bytes : -1;
    for (const OwnerNode* child = node->newest_child; child != nullptr; child = child->older) {
      refs.push_back(child->opened_ref);  // of one that is closing nothing is found by it
    }
  }
  stats->place = PlaceOf(place, workspace);
  stats->loans = internal::ListLoans(*node, list ? &stats->owned : nullptr);
  for (OwnedArray& array : stats->owned) array.what = internal::DescribeOwned(array.buffer_id);
  stats->depth = visit.depth;
  stats->path =
      visit.parent_path.empty() ? stats->name : absl::StrCat(visit.parent_path, "/", stats->name);
  // Pushed newest first, so that the oldest is on top of the stack.
  for (const uint64_t ref : refs) children->push_back({ref, visit.depth + 1, stats->path});
  return true;
}

std::string Bytes(int64_t bytes) {
  if (bytes < 10 * 1024) return absl::StrCat(bytes, " B");
  const bool is_less = bytes < int64_t{10} << 20;
  std::string text;
  AppendFixed(&text, static_cast<double>(bytes) / (is_less ? 1024 : 1 << 20), 1);
  return text + (is_less ? " KiB" : " MiB");
}

}  // namespace

OwnershipSnapshot SnapshotOf(OwnerRef owner, bool list_arrays) {
  OwnershipSnapshot snapshot;
  std::vector<Visit> stack = {{owner.bits(), 0, ""}};
  while (!stack.empty()) {
    const Visit visit = std::move(stack.back());
    stack.pop_back();
    OwnerStats stats{};
    if (Look(visit, list_arrays, &stats, &stack)) snapshot.push_back(std::move(stats));
  }
  // From the leaves up: a node's parent is the nearest one before it that is less deep.
  for (OwnerStats& stats : snapshot) {
    stats.subtree_arrays = stats.arrays;
    stats.subtree_bytes = stats.bytes;
  }
  std::vector<size_t> path;  // of the node at hand, by depth
  std::vector<size_t> parents(snapshot.size(), SIZE_MAX);
  for (size_t i = 0; i < snapshot.size(); ++i) {
    path.resize(static_cast<size_t>(snapshot[i].depth));
    if (!path.empty()) parents[i] = path.back();
    path.push_back(i);
  }
  for (size_t i = snapshot.size(); i-- > 0;) {
    if (parents[i] == SIZE_MAX) continue;
    snapshot[parents[i]].subtree_arrays += snapshot[i].subtree_arrays;
    snapshot[parents[i]].subtree_bytes += snapshot[i].subtree_bytes;
  }
  return snapshot;
}

OwnershipSnapshot SnapshotOf(const Ownership& owner, bool list_arrays) {
  return SnapshotOf(owner.ref(), list_arrays);
}

std::vector<OwnershipGrowth> Diff(const OwnershipSnapshot& before, const OwnershipSnapshot& after) {
  std::map<std::string, OwnershipGrowth> paths;
  const auto add = [&paths](const OwnershipSnapshot& snapshot, int64_t sign) {
    for (const OwnerStats& stats : snapshot) {
      OwnershipGrowth& growth = paths[stats.path];
      growth.nodes += sign;
      growth.arrays += sign * stats.arrays;
      growth.bytes += sign * stats.bytes;
      growth.loans += sign * stats.loans;
    }
  };
  add(before, -1);
  add(after, 1);
  std::vector<OwnershipGrowth> result;
  for (auto& [path, growth] : paths) {
    if (growth.nodes == 0 && growth.arrays == 0 && growth.bytes == 0 && growth.loans == 0) continue;
    growth.path = path;
    result.push_back(growth);
  }
  return result;
}

std::string ToString(const std::vector<OwnershipGrowth>& growth) {
  std::string text;
  const auto signed_number = [](int64_t value) {
    return absl::StrCat(value > 0 ? "+" : "", value);
  };
  for (const OwnershipGrowth& line : growth) {
    absl::StrAppend(&text, OneLine(line.path), ": managers ", signed_number(line.nodes),
                    ", arrays ", signed_number(line.arrays), ", bytes ", signed_number(line.bytes),
                    ", loans ", signed_number(line.loans), "\n");
  }
  return text;
}

std::string DumpText(const OwnershipSnapshot& snapshot) {
  std::string text;
  for (const OwnerStats& stats : snapshot) {
    const std::string indent(static_cast<size_t>(stats.depth) * 2, ' ');
    absl::StrAppend(&text, indent, OneLine(stats.name), "  ", DeviceName(stats.device), ", ",
                    stats.place, "; ", stats.arrays, stats.arrays == 1 ? " array, " : " arrays, ",
                    Bytes(stats.bytes), " (peak ", Bytes(stats.peak_bytes), ")");
    if (stats.subtree_arrays != stats.arrays) {
      absl::StrAppend(&text, ", with sub-managers ", stats.subtree_arrays, ", ",
                      Bytes(stats.subtree_bytes));
    }
    if (stats.loans > 0) absl::StrAppend(&text, ", ", stats.loans, " borrowed");
    if (stats.resources > 0) absl::StrAppend(&text, ", ", stats.resources, " other resources");
    if (stats.budget_bytes >= 0) absl::StrAppend(&text, ", budget ", Bytes(stats.budget_bytes));
    if (stats.capped) absl::StrAppend(&text, ", capped");
    text += ", ";
    AppendFixed(&text, stats.age_seconds, 1);
    text += " s\n";
    for (const OwnedArray& array : stats.owned) {
      absl::StrAppend(&text, indent, "  - ", array.borrowed ? "borrowed " : "", "array ",
                      array.buffer_id, ": ", Bytes(array.bytes), array.what.empty() ? "" : ", ",
                      array.what, "\n");
    }
  }
  return text;
}

void DebugDump(const Ownership& owner, std::ostream& out, bool list_arrays) {
  out << DumpText(SnapshotOf(owner, list_arrays));
}

namespace internal {

std::string DescribeOpen(OwnerNode& root) {
  const OwnershipSnapshot snapshot =
      SnapshotOf(OwnerRef(root.ref.load(std::memory_order_relaxed)), true);
  if (snapshot.empty()) return "";
  if (snapshot.size() == 1 && snapshot[0].arrays == 0 && snapshot[0].resources == 0) return "";
  return absl::StrCat("root ", snapshot[0].name, " ends with ", snapshot.size() - 1,
                      " managers and ", snapshot[0].subtree_arrays, " arrays open:\n",
                      DumpText(snapshot));
}

}  // namespace internal

}  // namespace tidepool
