// What ranks do together, as values: kinds of collectives, their operands, and records of those
// that were done.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_H_
#define TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::nn {

enum class CollectiveKind : uint8_t {
  kBroadcast,      // all have what the root has
  kAllReduce,      // all have the sum
  kReduceScatter,  // each has its part of the sum; what is in the others' parts is of no meaning
  kAllGather,      // all have every rank's part
  kBarrier,        // all have come
};
inline constexpr int kCollectiveKinds = 5;
const char* CollectiveKindName(CollectiveKind kind);  // "all-reduce"

enum class ElementType : uint8_t { kBytes, kFloat32, kFloat64 };
size_t BytesOf(ElementType type);

// Memory that collectives work on in place: the host's, or that of the device whose memory the
// transport moves (Communicator::device).
struct Elements {
  void* data = nullptr;
  int64_t count = 0;
  ElementType type = ElementType::kBytes;
  Device device = Host();
  QueuePoint after;  // on a device: what wrote them, and reads what is to be written over

  Elements() = default;
  Elements(void* its_data, int64_t its_count, ElementType its_type, Device its_device = Host(),
           QueuePoint behind = {})
      : data(its_data), count(its_count), type(its_type), device(its_device), after(behind) {}
  Elements(absl::Span<float> of)
      : Elements(of.data(), Count(of), ElementType::kFloat32) {}  // NOLINT
  Elements(absl::Span<double> of)
      : Elements(of.data(), Count(of), ElementType::kFloat64) {}  // NOLINT
  Elements(absl::Span<std::byte> of)
      : Elements(of.data(), Count(of), ElementType::kBytes) {}  // NOLINT
  size_t bytes() const { return static_cast<size_t>(count) * BytesOf(type); }
  std::byte* at(int64_t element) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(element) * BytesOf(type);
  }

 private:
  template <typename Span>
  static int64_t Count(const Span& of) {
    return static_cast<int64_t>(of.size());
  }
};

// Elements [begin, end) that are a rank's part of `count`: consecutive, none longer than another by
// more than one.
std::pair<int64_t, int64_t> PartOf(int64_t count, int rank, int size);

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Elements elements;
  int root = 0;           // of kBroadcast
  const char* site = "";  // what it is for; a literal
  int64_t sequence = 0;   // from 1, of the communicator
};

// One that was begun. All ranks have the same ones in the same order; where they differ is what
// went wrong.
struct CollectiveRecord {
  int64_t sequence = 0;
  int64_t step = 0;  // of training
  int64_t count = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  ElementType type = ElementType::kBytes;
  std::string site;

  // Of the same operands for the same purpose.
  bool IsLike(const CollectiveRecord& other) const {
    return sequence == other.sequence && kind == other.kind && type == other.type &&
           count == other.count && site == other.site;
  }
  std::string ToString() const;  // "collective 17 at step 4: all-reduce of 400 f32 [bucket]"
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_H_
