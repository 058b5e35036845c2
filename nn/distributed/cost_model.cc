#include "tidepool/nn/distributed/cost_model.h"

#include <algorithm>
#include <cmath>

#include "tidepool/nn/distributed/collectives.h"

namespace tidepool::nn {
namespace {

double PiecesOf(double bytes) {
  return std::max(1.0, std::ceil(bytes / static_cast<double>(Collectives::kPieceBytes)));
}

}  // namespace

double SecondsOf(CollectiveKind kind, int64_t bytes, int ranks, const LinkCost& link) {
  if (ranks < 2) return 0;
  const double size = static_cast<double>(bytes), n = ranks, levels = std::ceil(std::log2(n));
  const double ring = (n - 1) * (PiecesOf(size / n) * link.alpha + link.beta * size / n);
  const double tree = 2 * levels * (link.alpha + link.beta * size);
  const bool is_small = bytes <= static_cast<int64_t>(Collectives::kTreeBytes);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return is_small ? tree : 2 * ring;
    case CollectiveKind::kReduceScatter:
      return is_small ? tree : ring;
    case CollectiveKind::kAllGather:
      return ring;
    case CollectiveKind::kBroadcast:
      return (PiecesOf(size) - 1 + levels) * (link.alpha + link.beta * size / PiecesOf(size));
    case CollectiveKind::kBarrier:
      return 2 * levels * link.alpha;
  }
  return 0;
}

Overlap OverlapOf(absl::Span<const BucketTime> buckets, double backward, int ranks,
                  const LinkCost& link) {
  Overlap overlap;
  double end = 0;
  for (const BucketTime& bucket : buckets) {
    const double takes = SecondsOf(CollectiveKind::kAllReduce, bucket.bytes, ranks, link);
    overlap.communication += takes;
    end = std::max(end, bucket.complete) + takes;
  }
  overlap.exposed = std::max(0.0, end - backward);
  return overlap;
}

}  // namespace tidepool::nn
