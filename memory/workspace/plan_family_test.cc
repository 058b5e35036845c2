#include "tidepool/memory/workspace/plan_family.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

using Requests = std::vector<LifetimeBuffer>;

std::vector<PlacedRequests> Place(const std::vector<Requests>& members,
                                  size_t favoured = SIZE_MAX) {
  std::vector<absl::Span<const LifetimeBuffer>> spans(members.begin(), members.end());
  return PlaceFamily(spans, 64, favoured);
}

size_t Common(const Requests& a, const Requests& b) {
  size_t i = 0;
  while (i < std::min(a.size(), b.size()) && a[i].size == b[i].size) ++i;
  return i;
}

// A cycle that is `actual` and has followed the plan of `expected` as long as both are alike finds the place of
// each of its requests free, then and when it goes on with its own.
void ExpectNobodyInTheWay(const std::vector<Requests>& members,
                          const std::vector<PlacedRequests>& plans) {
  for (size_t actual = 0; actual < members.size(); ++actual) {
    const Requests& lives = members[actual];
    for (size_t expected = 0; expected < members.size(); ++expected) {
      const size_t common = Common(lives, members[expected]);
      for (size_t i = 0; i < common; ++i) {
        ASSERT_EQ(plans[actual].offsets[i], plans[expected].offsets[i]);
        ASSERT_GE(plans[expected].requests[i].upper,
                  std::min<int64_t>(lives[i].upper, static_cast<int64_t>(common)));
      }
    }
    for (size_t i = 0; i < lives.size(); ++i) {
      const int64_t begin = plans[actual].offsets[i], end = begin + lives[i].size;
      ASSERT_LE(static_cast<size_t>(end), plans[actual].peak_bytes);
      for (size_t j = i + 1; j < lives.size() && static_cast<int64_t>(j) < lives[i].upper; ++j) {
        const int64_t other = plans[actual].offsets[j];
        ASSERT_TRUE(other >= end || other + lives[j].size <= begin)
            << "requests " << i << " and " << j << " of member " << actual;
      }
    }
  }
}

TEST(PlanFamily, NobodyIsInTheWayOfAnother) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Requests> members;
    const size_t count = 1 + random() % 12;
    while (members.size() < count) {
      Requests requests;
      // Mostly a beginning of another one, with lifetimes of its own.
      if (!members.empty() && random() % 4 != 0) {
        const Requests& other = members[random() % members.size()];
        requests.assign(other.begin(), other.begin() + random() % (other.size() + 1));
      }
      const size_t more = random() % 12 + requests.empty();
      for (size_t i = 0; i < more; ++i) {
        requests.push_back({0, 0, static_cast<int64_t>(64 * (1 + random() % 3))});
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].lower = static_cast<int64_t>(i);
        requests[i].upper = static_cast<int64_t>(i + 1 + random() % (requests.size() - i));
      }
      if (requests.empty() ||
          std::any_of(members.begin(), members.end(), [&](const Requests& other) {
            return other.size() == requests.size() && Common(other, requests) == requests.size();
          })) {
        continue;
      }
      members.push_back(std::move(requests));
    }
    ExpectNobodyInTheWay(members, Place(members));
    ExpectNobodyInTheWay(members, Place(members, random() % members.size()));
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// What is common and small does not lie above the large one of one member, where it would be in the middle of another's.
TEST(PlanFamily, ASmallCommonRequestDoesNotDoubleThePages) {
  const std::vector<Requests> members = {{{0, 2, 1024}, {1, 2, 22528}},
                                         {{0, 2, 1024}, {1, 2, 25600}}};
  const std::vector<PlacedRequests> plans = Place(members);
  EXPECT_EQ(plans[0].peak_bytes, 1024u + 22528);
  EXPECT_EQ(plans[1].peak_bytes, 1024u + 25600);
}

TEST(PlanFamily, TheFavouredMemberIsAsSmallAsItCanBe) {
  // Alone the last one needs 128 bytes; the others' long first request is there in it, too, until they part.
  const std::vector<Requests> members = {{{0, 3, 64}, {1, 3, 4096}, {2, 3, 64}},
                                         {{0, 1, 64}, {1, 2, 64}, {2, 3, 64}}};
  EXPECT_EQ(Place(members, 1)[1].peak_bytes, 64u);
}

}  // namespace
}  // namespace tidepool
