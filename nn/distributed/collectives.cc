#include "tidepool/nn/distributed/collectives.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

template <typename T>
void AddTo(T* __restrict sum, const T* __restrict more, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += more[i];
}

void Add(ElementType type, void* sum, const void* more, int64_t count) {
  if (type == ElementType::kFloat32)
    return AddTo(static_cast<float*>(sum), static_cast<const float*>(more), count);
  AddTo(static_cast<double*>(sum), static_cast<const double*>(more), count);
}

// Ranks that do different things do not take each other's bytes for their own: they wait, which is
// noticed.
int TagOf(const CollectiveCall& call) {
  uint64_t hash = static_cast<uint64_t>(call.sequence) * 0x9E3779B97F4A7C15u;
  for (const uint64_t part :
       {static_cast<uint64_t>(call.kind), static_cast<uint64_t>(call.elements.type),
        static_cast<uint64_t>(call.elements.count), static_cast<uint64_t>(call.root)}) {
    hash = (hash ^ part) * 0xD1342543DE82EF95u;
    hash ^= hash >> 29;
  }
  return static_cast<int>(hash >> 32) & (Transport::kMostTags - 1);
}

}  // namespace

Collectives::Collectives(Transport& transport)
    : transport_(transport), rank_(transport.rank()), size_(transport.size()) {
  if (size_ == 1) return;
  const MemoryOwnerScope owner("distributed");
  scratch_ = BufferHandle(NewHeapBuffer(kPieceBytes, kHeapAlignment, MemoryKind::kWorkspace));
}

bool Collectives::Run(const CollectiveCall& call) {
  const Elements& elements = call.elements;
  const bool sums =
      call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter;
  if (elements.count < 0 || (sums && elements.type == ElementType::kBytes)) {
    ThrowInvalidArgument(
        absl::StrCat("distributed: ", CollectiveKindName(call.kind), " [", call.site, "] of ",
                     elements.count, elements.type == ElementType::kBytes ? " bytes" : " elements",
                     sums ? ", expected a sum of f32 or f64" : ", expected a number from 0"));
  }
  if (call.root < 0 || call.root >= size_) {
    ThrowInvalidArgument(absl::StrCat("distributed: broadcast [", call.site, "] from rank ",
                                      call.root, ", expected 0 to ", size_ - 1));
  }
  if (size_ == 1) return true;
  switch (transport_.RunCollective(call)) {
    case Transport::Answer::kDone:
      return true;
    case Transport::Answer::kInterrupted:
      return false;
    case Transport::Answer::kNotMine:
      break;
  }
  tag_ = TagOf(call);
  switch (call.kind) {
    case CollectiveKind::kBroadcast:
      // In pieces, so that those far from the root need not wait for the whole to come to those
      // before them.
      for (int64_t begin = 0; begin < elements.count;) {
        const int64_t count = std::min(elements.count - begin,
                                       static_cast<int64_t>(kPieceBytes / BytesOf(elements.type)));
        if (!TreeBroadcast({elements.at(begin), count, elements.type}, call.root)) return false;
        begin += count;
      }
      return true;
    case CollectiveKind::kAllGather:
      return RingAllGather(elements);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      // By the same way, so that parts of sums have the bits of whole ones.
      if (elements.bytes() <= kTreeBytes) return TreeReduce(elements) && TreeBroadcast(elements, 0);
      return RingReduceScatter(elements) &&
             (call.kind == CollectiveKind::kReduceScatter || RingAllGather(elements));
    case CollectiveKind::kBarrier:
      break;
  }
  return TreeReduce(Elements()) && TreeBroadcast(Elements(), 0);
}

bool Collectives::Exchange(int to, const void* out, size_t out_bytes, int from, void* in,
                           size_t in_bytes) {
  if (to >= 0) {
    bytes_sent_.fetch_add(static_cast<int64_t>(out_bytes), std::memory_order_relaxed);
    messages_sent_.fetch_add(1, std::memory_order_relaxed);
  }
  return transport_.Run({to, out, out_bytes, from, in, in_bytes, tag_});
}

// Messages without bytes go too: who gets one knows that the other has come.
bool Collectives::TreeReduce(const Elements& elements) {
  const size_t bytes = elements.bytes();
  for (int step = 1; step < size_; step <<= 1) {
    if ((rank_ & step) != 0) return Exchange(rank_ - step, elements.data, bytes, -1, nullptr, 0);
    if (rank_ + step >= size_) continue;
    if (!Exchange(-1, nullptr, 0, rank_ + step, scratch_->data, bytes)) return false;
    if (bytes > 0) Add(elements.type, elements.data, scratch_->data, elements.count);
  }
  return true;
}

bool Collectives::TreeBroadcast(const Elements& elements, int root) {
  const int place = (rank_ - root + size_) % size_;  // the root's is 0
  const auto rank_at = [&](int p) { return (p + root) % size_; };
  int step = 1;
  for (; step < size_; step <<= 1) {
    if ((place & step) == 0) continue;
    if (!Exchange(-1, nullptr, 0, rank_at(place - step), elements.data, elements.bytes()))
      return false;
    break;
  }
  for (step >>= 1; step > 0; step >>= 1) {
    if (place + step >= size_) continue;
    if (!Exchange(rank_at(place + step), elements.data, elements.bytes(), -1, nullptr, 0))
      return false;
  }
  return true;
}

bool Collectives::PassOn(const Elements& elements, Part out, Part in, bool add) {
  const int to = (rank_ + 1) % size_, from = (rank_ + size_ - 1) % size_;
  const auto piece = static_cast<int64_t>(kPieceBytes / BytesOf(elements.type));
  // The neighbours' parts may be longer by one element: who has nothing left to send or to take
  // leaves it out, on both sides.
  while (out.first < out.second || in.first < in.second) {
    const int64_t goes = std::min(piece, out.second - out.first),
                  comes = std::min(piece, in.second - in.first);
    void* const into = add ? scratch_->data : elements.at(in.first);
    if (!Exchange(goes > 0 ? to : -1, elements.at(out.first),
                  static_cast<size_t>(goes) * BytesOf(elements.type), comes > 0 ? from : -1, into,
                  static_cast<size_t>(comes) * BytesOf(elements.type))) {
      return false;
    }
    if (add && comes > 0) Add(elements.type, elements.at(in.first), into, comes);
    out.first += goes;
    in.first += comes;
  }
  return true;
}

bool Collectives::RingReduceScatter(const Elements& elements) {
  const auto part = [&](int which) {
    return PartOf(elements.count, (which % size_ + size_) % size_, size_);
  };
  for (int round = 0; round + 1 < size_; ++round) {
    if (!PassOn(elements, part(rank_ - 1 - round), part(rank_ - 2 - round), /*add=*/true))
      return false;
  }
  return true;
}

bool Collectives::RingAllGather(const Elements& elements) {
  const auto part = [&](int which) {
    return PartOf(elements.count, (which % size_ + size_) % size_, size_);
  };
  for (int round = 0; round + 1 < size_; ++round) {
    if (!PassOn(elements, part(rank_ - round), part(rank_ - 1 - round), /*add=*/false))
      return false;
  }
  return true;
}

}  // namespace tidepool::nn
