// The bytes of a record: what docs/recording.md describes, as constants, and how one block of it is
// made. No memory is taken and nothing is thrown here: libtidepool_record.so writes from inside
// malloc.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_FORMAT_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_FORMAT_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tidepool::record {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr char kMagic[16] = "tidepool record";
inline constexpr uint32_t kVersion = 1;

// What the events are about.
enum class Source : uint32_t {
  kArrays = 1,   // requests of Tidepool's workspaces and heap
  kMalloc = 2,   // malloc and its like
  kForeign = 3,  // what another tool has recorded
};

struct FileHeader {
  char magic[16];
  uint32_t version;
  uint32_t source;
  uint64_t process;  // its number
  int64_t began;     // nanoseconds since 1970
  uint32_t reserved;
  uint32_t checksum;  // CRC-32 of the bytes before
};
static_assert(sizeof(FileHeader) == 48);

enum class BlockType : uint32_t {
  kNames = 1,   // texts and their numbers
  kLive = 2,    // what was there when recording began
  kEvents = 3,  // of one thread
  kEnd = 4,     // recording ended in order; nothing comes behind it
};

inline constexpr uint32_t kBlockMarker = 0x42504454;  // "TDPB"
struct BlockHeader {
  uint32_t marker;
  uint32_t type;
  uint32_t payload_bytes;
  uint32_t thread;
  uint64_t first_number;  // of its first event
  int64_t nanoseconds;    // since recording began, of its first event
  uint32_t reserved;
  uint32_t checksum;  // CRC-32 of the bytes of the header before it, then of the payload
};
static_assert(sizeof(BlockHeader) == 40);

// An event is a byte, of which these are the lowest three bits, and what op says behind it.
enum class Op : uint8_t {
  kAllocate = 0,    // number, key, bytes; see below
  kFree = 1,        // number, key
  kCycleBegin = 2,  // number, name, generation
  kCycleEnd = 3,    // number, name, generation
  kTime = 4,        // nanoseconds since the time before
};
inline constexpr int kOps = 5;
// Of kAllocate: bits 3 to 6 are the alignment's logarithm, kAlignmentFollows where a byte has it;
// bit 7: kind (a byte), device and owner (names) have changed and come first.
inline constexpr uint8_t kAlignmentFollows = 15;
inline constexpr uint8_t kContextFollows = 0x80;

inline constexpr size_t kMostPayloadBytes = size_t{1} << 20;
inline constexpr uint32_t kMostThreads = 1 << 20;
inline constexpr uint32_t kMostNames = 1 << 18;  // numbers are below it; 0 is the empty text
inline constexpr size_t kMostNameBytes = 4096;
inline constexpr unsigned kMostAlignmentLog2 = 46;
inline constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // of a block, less than
inline constexpr uint64_t kMostBytesInAll = uint64_t{1}
                                            << 62;  // of all of a record, so that sums are numbers

namespace internal {

constexpr std::array<std::array<uint32_t, 256>, 4> MakeCrcTables() {
  std::array<std::array<uint32_t, 256>, 4> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (int t = 1; t < 4; ++t) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
    }
  }
  return tables;
}
inline constexpr auto kCrcTables = MakeCrcTables();

}  // namespace internal

// The checksum of gzip and PNG, continued from `crc`, which is 0 at first.
inline uint32_t Crc32(uint32_t crc, const void* data, size_t bytes) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  const auto& tables = internal::kCrcTables;
  crc = ~crc;
  for (; bytes >= 4; bytes -= 4, p += 4) {
    uint32_t word;
    std::memcpy(&word, p, sizeof(word));
    crc ^= word;
    crc = tables[3][crc & 0xFF] ^ tables[2][(crc >> 8) & 0xFF] ^ tables[1][(crc >> 16) & 0xFF] ^
          tables[0][crc >> 24];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ tables[0][(crc ^ *p) & 0xFF];
  return ~crc;
}

// What an allocation is for; the same as the last one's in nearly all cases.
struct Context {
  uint32_t owner = 0;   // number of a name; 0: nobody's
  uint32_t device = 0;  // number of its name; 0: the host
  uint8_t kind = 0;     // MemoryKind

  friend bool operator==(const Context&, const Context&) = default;
};

// One block in the making, at the beginning of `Capacity` bytes of its own. Not of several threads,
// but that used() may be read by others, who then may read so many bytes.
template <size_t Capacity>
class BlockBuffer {
 public:
  static constexpr size_t kMostEventBytes = 64;
  static_assert(Capacity > sizeof(BlockHeader) + 2 * kMostEventBytes);
  static_assert(Capacity <= kMostPayloadBytes);

  // Bytes of the payload, 0 without one.
  size_t used() const noexcept { return __atomic_load_n(&used_, __ATOMIC_ACQUIRE); }
  bool has_room() const noexcept {
    return used_ + 2 * kMostEventBytes <= Capacity - sizeof(BlockHeader);
  }
  void Clear() noexcept { __atomic_store_n(&used_, size_t{0}, __ATOMIC_RELEASE); }

  // There must be room. Numbers only grow.
  void Allocate(uint64_t number, int64_t time, uint64_t key, uint64_t bytes,
                unsigned alignment_log2, const Context& context) noexcept {
    char* p = Begin(number, time);
    const bool same = context == context_;
    const unsigned coded = alignment_log2 < kAlignmentFollows ? alignment_log2 : kAlignmentFollows;
    *p++ = static_cast<char>(static_cast<unsigned>(Op::kAllocate) | coded << 3 |
                             (same ? 0u : unsigned{kContextFollows}));
    if (coded == kAlignmentFollows) *p++ = static_cast<char>(alignment_log2);
    if (!same) {
      context_ = context;
      *p++ = static_cast<char>(context.kind);
      p = Put(p, context.device);
      p = Put(p, context.owner);
    }
    p = PutNumber(p, number);
    p = PutKey(p, key);
    End(Put(p, bytes));
  }
  void Free(uint64_t number, int64_t time, uint64_t key) noexcept {
    char* p = Begin(number, time);
    *p++ = static_cast<char>(Op::kFree);
    p = PutNumber(p, number);
    End(PutKey(p, key));
  }
  void Cycle(uint64_t number, int64_t time, bool begins, uint32_t name,
             uint64_t generation) noexcept {
    char* p = Begin(number, time);
    *p++ = static_cast<char>(begins ? Op::kCycleBegin : Op::kCycleEnd);
    p = PutNumber(p, number);
    p = Put(p, name);
    End(Put(p, generation));
  }

  // The bytes to write: header and so much of the payload. Makes the header.
  const char* Finish(BlockType type, uint32_t thread, size_t used, size_t* bytes) noexcept {
    BlockHeader header = {kBlockMarker,
                          static_cast<uint32_t>(type),
                          static_cast<uint32_t>(used),
                          thread,
                          first_number_,
                          first_time_,
                          0,
                          0};
    constexpr size_t kSummed = offsetof(BlockHeader, checksum);
    header.checksum = Crc32(Crc32(0, &header, kSummed), data_ + sizeof(header), used);
    std::memcpy(data_, &header, sizeof(header));
    *bytes = sizeof(header) + used;
    return data_;
  }

  static char* Put(char* p, uint64_t value) noexcept {
    for (; value >= 0x80; value >>= 7) *p++ = static_cast<char>(value | 0x80);
    *p++ = static_cast<char>(value);
    return p;
  }

 private:
  char* Begin(uint64_t number, int64_t time) noexcept {
    char* p = data_ + sizeof(BlockHeader) + used_;
    if (used_ == 0) {
      first_number_ = number;
      number_ = number - 1;
      first_time_ = time_ = time;
      key_ = 0;
      context_ = {};
    } else if (time > time_) {
      *p++ = static_cast<char>(Op::kTime);
      p = Put(p, static_cast<uint64_t>(time - time_));
      time_ = time;
    }
    return p;
  }
  char* PutNumber(char* p, uint64_t number) noexcept {
    p = Put(p, number - number_ - 1);
    number_ = number;
    return p;
  }
  char* PutKey(char* p, uint64_t key) noexcept {
    const auto change = static_cast<int64_t>(key - key_);
    key_ = key;
    return Put(p, static_cast<uint64_t>(change) << 1 ^ static_cast<uint64_t>(change >> 63));
  }
  void End(const char* p) noexcept {
    __atomic_store_n(&used_, static_cast<size_t>(p - data_) - sizeof(BlockHeader),
                     __ATOMIC_RELEASE);
  }

  size_t used_ = 0;
  uint64_t number_ = 0, first_number_ = 0, key_ = 0;
  int64_t time_ = 0, first_time_ = 0;
  Context context_;
  char data_[Capacity];
};

}  // namespace tidepool::record

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_FORMAT_H_
