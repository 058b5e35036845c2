#include "tidepool/memory/testing/ownership_matchers.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"

namespace tidepool {
namespace {

constexpr int kMostListed = 10;

// By buffer and whether it is borrowed.
using Known = std::set<std::pair<uint64_t, bool>>;

Known AllIn(const OwnershipSnapshot& snapshot) {
  Known known;
  for (const OwnerStats& stats : snapshot) {
    for (const OwnedArray& array : stats.owned) known.emplace(array.buffer_id, array.borrowed);
  }
  return known;
}

std::string NewArrays(const Known& before, const OwnershipSnapshot& after,
                      const std::string& path) {
  std::string text;
  int listed = 0, more = 0;
  for (const OwnerStats& stats : after) {
    if (stats.path != path) continue;
    for (const OwnedArray& array : stats.owned) {
      if (before.count({array.buffer_id, array.borrowed}) > 0) continue;
      if (listed == kMostListed) {
        ++more;
        continue;
      }
      ++listed;
      absl::StrAppend(&text, "\n    ", array.borrowed ? "borrowed " : "", "array ", array.buffer_id,
                      ": ", array.bytes, " bytes", array.what.empty() ? "" : ", ", array.what);
    }
  }
  if (more > 0) absl::StrAppend(&text, "\n    and ", more, " more");
  return text;
}

MemoryVerdict Judge(OwnerRef owner, const std::string& name, const std::function<void()>& action) {
  const OwnershipSnapshot before = SnapshotOf(owner, true);
  if (before.empty()) return {false, absl::StrCat("which was not run: ", name, " is closed")};
  action();
  const OwnershipSnapshot after = SnapshotOf(owner, true);
  if (after.empty()) return {false, absl::StrCat("which closed ", name)};
  const Known known = AllIn(before);
  std::string text;
  for (const OwnershipGrowth& growth : Diff(before, after)) {
    if (growth.nodes <= 0 && growth.arrays <= 0 && growth.bytes <= 0 && growth.loans <= 0) continue;
    std::string line = ToString({growth});
    line.pop_back();  // the end of the line
    absl::StrAppend(&text, "\n  ", line, NewArrays(known, after, growth.path));
  }
  if (text.empty()) return {true, absl::StrCat("which left nothing in ", name)};
  return {false, absl::StrCat("which left in ", name, ":", text)};
}

}  // namespace

::testing::PolymorphicMatcher<MemoryMatcher> GrowsNothingIn(OwnerRef owner) {
  const std::string name = owner.ToString();
  return ::testing::MakePolymorphicMatcher(MemoryMatcher(
      absl::StrCat("leaves nothing in ", name),
      [owner, name](const std::function<void()>& action) { return Judge(owner, name, action); }));
}

}  // namespace tidepool
