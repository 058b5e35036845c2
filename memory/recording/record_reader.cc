// Reads a record: block by block, nothing believed that was not compared with what is there. It ends
// with the last block whose checksum holds.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/recording/record.h"

namespace tidepool {
namespace {

using record::BlockHeader;
using record::BlockType;
using record::FileHeader;
using record::Op;

// Where bytes come from: a file, or what is in memory already.
class Bytes {
 public:
  virtual ~Bytes() = default;
  // Fewer at the end only.
  virtual size_t Read(absl::Span<char> into) = 0;
};

class TextBytes final : public Bytes {
 public:
  explicit TextBytes(absl::string_view text) : text_(text) {}
  size_t Read(absl::Span<char> into) override {
    const size_t count = std::min(into.size(), text_.size());
    std::memcpy(into.data(), text_.data(), count);
    text_.remove_prefix(count);
    return count;
  }

 private:
  absl::string_view text_;
};

class FileBytes final : public Bytes {
 public:
  explicit FileBytes(FileReader& file) : file_(file) {}
  size_t Read(absl::Span<char> into) override {
    size_t count = 0;
    while (count < into.size()) {
      const size_t got =
          file_.Read({reinterpret_cast<std::byte*>(into.data()) + count, into.size() - count});
      if (got == 0) break;
      count += got;
    }
    return count;
  }

 private:
  FileReader& file_;
};

class Reader {
 public:
  Reader(Bytes& bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Record Read() {
    ReadFileHeader();
    record_.ended = false;
    while (!record_.ended && ReadBlock()) {
    }
    if (record_.ended) {
      char more;
      if (bytes_.Read({&more, 1}) > 0) {
        Fail(record_.bytes_read, "more bytes behind the end of the record", "none");
      }
    }
    std::sort(record_.events.begin(), record_.events.end(),
              [](const RecordEvent& a, const RecordEvent& b) { return a.number < b.number; });
    for (size_t i = 1; i < record_.events.size(); ++i) {
      if (record_.events[i].number != record_.events[i - 1].number) continue;
      Fail(record_.bytes_read, absl::StrCat("two events of number ", record_.events[i].number),
           "one of each");
    }
    record_.events.shrink_to_fit();
    return std::move(record_);
  }

 private:
  [[noreturn]] void Fail(uint64_t offset, const std::string& found, const std::string& expected) {
    ThrowDataLoss(
        absl::StrCat(name_, ": offset ", offset, ": found ", found, ", expected ", expected));
  }

  void ReadFileHeader() {
    FileHeader header;
    const size_t got = bytes_.Read({reinterpret_cast<char*>(&header), sizeof(header)});
    if (got < sizeof(header)) {
      Fail(got, "the end of the file", absl::StrCat("a header of ", sizeof(header), " bytes"));
    }
    if (std::memcmp(header.magic, record::kMagic, sizeof(header.magic)) != 0) {
      Fail(0, "other bytes", "\"tidepool record\", with which records begin");
    }
    if (header.version != record::kVersion) {
      Fail(offsetof(FileHeader, version), absl::StrCat("version ", header.version),
           absl::StrCat("version ", record::kVersion));
    }
    const uint32_t crc = record::Crc32(0, &header, offsetof(FileHeader, checksum));
    if (crc != header.checksum) {
      Fail(offsetof(FileHeader, checksum), absl::StrCat("checksum ", header.checksum),
           absl::StrCat(crc));
    }
    if (header.source < 1 || header.source > 3) {
      Fail(offsetof(FileHeader, source), absl::StrCat("source ", header.source), "1 to 3");
    }
    record_.source = static_cast<record::Source>(header.source);
    record_.process = header.process;
    record_.began = header.began;
    record_.bytes_read = sizeof(header);
  }

  // False: the damaged block ends the record, and the rest of the file is counted.
  bool Damaged(uint64_t offset, const std::string& found, const std::string& expected) {
    record_.damage = absl::StrCat("offset ", offset, ": found ", found, ", expected ", expected);
    payload_.resize(record::kMostPayloadBytes);
    while (const size_t read = bytes_.Read(absl::MakeSpan(payload_))) record_.bytes_behind += read;
    return false;
  }

  // False: the file ends within it, or before it, or it is damaged.
  bool ReadBlock() {
    const uint64_t at = record_.bytes_read;
    BlockHeader header;
    const size_t got = bytes_.Read({reinterpret_cast<char*>(&header), sizeof(header)});
    record_.bytes_behind = got;
    if (got >= sizeof(header.marker) && header.marker != record::kBlockMarker) {
      return Damaged(
          at, absl::StrCat("0x", absl::Hex(header.marker)),
          absl::StrCat("a block, which begins with 0x", absl::Hex(record::kBlockMarker)));
    }
    if (got < sizeof(header)) return false;
    const auto field = [&](size_t offset) { return at + offset; };
    if (header.payload_bytes > record::kMostPayloadBytes) {
      return Damaged(field(offsetof(BlockHeader, payload_bytes)),
                     absl::StrCat("a block of ", header.payload_bytes, " bytes"),
                     absl::StrCat("at most ", record::kMostPayloadBytes));
    }
    payload_.resize(header.payload_bytes);
    const size_t read = bytes_.Read(absl::MakeSpan(payload_));
    record_.bytes_behind += read;
    if (read < header.payload_bytes) return false;
    const uint32_t crc = record::Crc32(record::Crc32(0, &header, offsetof(BlockHeader, checksum)),
                                       payload_.data(), payload_.size());
    if (crc != header.checksum) {
      return Damaged(field(offsetof(BlockHeader, checksum)),
                     absl::StrCat("checksum ", header.checksum),
                     absl::StrCat(crc, ", that of the block"));
    }
    next_ = begin_ = payload_.data();
    end_ = begin_ + payload_.size();
    payload_at_ = at + sizeof(header);
    switch (static_cast<BlockType>(header.type)) {
      case BlockType::kNames:
        ReadNames();
        break;
      case BlockType::kLive:
        ReadEvents(header, record_.live);
        break;
      case BlockType::kEvents:
        ReadEvents(header, record_.events);
        break;
      case BlockType::kEnd:
        if (!payload_.empty()) {
          Fail(payload_at_, absl::StrCat(payload_.size(), " bytes in the end's block"), "none");
        }
        record_.ended = true;
        break;
      default:
        Fail(field(offsetof(BlockHeader, type)), absl::StrCat("a block of type ", header.type),
             "1 to 4");
    }
    record_.bytes_read = payload_at_ + payload_.size();
    record_.bytes_behind = 0;
    return true;
  }

  uint64_t offset() const { return payload_at_ + static_cast<uint64_t>(next_ - begin_); }

  uint64_t Number(const char* what) {
    const uint64_t at = offset();
    uint64_t value = 0;
    for (unsigned shift = 0; next_ < end_; shift += 7) {
      const auto byte = static_cast<unsigned char>(*next_++);
      if (shift == 63 && byte > 1)
        Fail(at, absl::StrCat(what, " of more than 64 bits"), "a number");
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    Fail(at, absl::StrCat("the end of the block within ", what), "a number");
  }
  uint64_t NumberBelow(const char* what, uint64_t limit) {
    const uint64_t at = offset();
    const uint64_t value = Number(what);
    if (value >= limit) {
      Fail(at, absl::StrCat(what, " ", value), absl::StrCat("less than ", limit));
    }
    return value;
  }
  uint8_t Byte(const char* what, unsigned limit) {
    if (next_ == end_) Fail(offset(), absl::StrCat("the end of the block before ", what), "a byte");
    const auto byte = static_cast<unsigned char>(*next_);
    if (byte >= limit)
      Fail(offset(), absl::StrCat(what, " ", byte), absl::StrCat("less than ", limit));
    ++next_;
    return byte;
  }

  void ReadNames() {
    while (next_ < end_) {
      const uint64_t at = offset();
      const uint64_t id = NumberBelow("a name's number", record::kMostNames);
      const uint64_t length = NumberBelow("a name's length", record::kMostNameBytes + 1);
      if (id == 0 || index_of_.count(static_cast<uint32_t>(id)) > 0) {
        Fail(at, absl::StrCat("name number ", id), id == 0 ? "1 at least" : "each once");
      }
      if (length > static_cast<uint64_t>(end_ - next_)) {
        Fail(offset(), absl::StrCat("a name of ", length, " bytes"),
             absl::StrCat("at most the ", end_ - next_, " that are left of the block"));
      }
      index_of_[static_cast<uint32_t>(id)] =
          record_.Name(absl::string_view(next_, static_cast<size_t>(length)));
      next_ += length;
    }
  }
  uint32_t NameIndex(const char* what) {
    const uint64_t at = offset();
    const uint64_t id = NumberBelow(what, record::kMostNames);
    if (id == 0) return 0;
    const auto found = index_of_.find(static_cast<uint32_t>(id));
    if (found == index_of_.end()) {
      Fail(at, absl::StrCat(what, " ", id), "a number whose name came before");
    }
    return found->second;
  }

  void ReadEvents(const BlockHeader& header, std::vector<RecordEvent>& into) {
    if (header.thread >= record::kMostThreads) {
      Fail(payload_at_ - sizeof(header) + offsetof(BlockHeader, thread),
           absl::StrCat("thread ", header.thread),
           absl::StrCat("less than ", record::kMostThreads));
    }
    record_.threads = std::max(record_.threads, header.thread + 1);
    uint64_t number = header.first_number - 1, key = 0;
    RecordEvent context;
    context.thread = header.thread;
    context.nanoseconds = header.nanoseconds;
    const auto take_number = [&](RecordEvent& event) {
      const uint64_t at = offset();
      const uint64_t change = Number("an event's number");
      if (change > UINT64_MAX - 1 - number && number != UINT64_MAX) {
        Fail(at, absl::StrCat("a number ", change, " behind ", number), "one of 64 bits");
      }
      event.number = number += change + 1;
    };
    const auto take_key = [&](RecordEvent& event) {
      const uint64_t change = Number("a block's key");
      event.block = key += change >> 1 ^ (~(change & 1) + 1);
    };
    while (next_ < end_) {
      const uint64_t at = offset();
      const auto first = static_cast<unsigned char>(*next_++);
      RecordEvent event = context;
      switch (static_cast<Op>(first & 7)) {
        case Op::kAllocate: {
          unsigned log2 = first >> 3 & 15;
          if (log2 == record::kAlignmentFollows) {
            log2 = Byte("an alignment's logarithm", record::kMostAlignmentLog2 + 1);
          }
          if ((first & record::kContextFollows) != 0) {
            context.kind = static_cast<MemoryKind>(Byte("kind of memory", kMemoryKinds));
            context.device = NameIndex("device");
            context.owner = NameIndex("owner");
            event = context;
          }
          event.what = RecordEvent::What::kAllocate;
          event.alignment_log2 = static_cast<uint8_t>(log2);
          take_number(event);
          take_key(event);
          event.bytes = NumberBelow("an allocation's bytes", record::kMostBytes);
          if ((all_bytes_ += event.bytes) >= record::kMostBytesInAll) {
            Fail(at, "allocations of 2^62 bytes in all by here", "less");
          }
          break;
        }
        case Op::kFree:
          event.what = RecordEvent::What::kFree;
          event.kind = MemoryKind::kAllocated;
          event.owner = event.device = 0;
          take_number(event);
          take_key(event);
          break;
        case Op::kCycleBegin:
        case Op::kCycleEnd:
          event.what = static_cast<Op>(first & 7) == Op::kCycleBegin
                           ? RecordEvent::What::kCycleBegin
                           : RecordEvent::What::kCycleEnd;
          event.kind = MemoryKind::kAllocated;
          event.device = 0;
          take_number(event);
          event.owner = NameIndex("cycle's name");
          event.bytes = Number("a generation");
          break;
        case Op::kTime: {
          const uint64_t change = Number("a time");
          const auto most =
              static_cast<uint64_t>(INT64_MAX - std::max<int64_t>(context.nanoseconds, 0));
          if (change > most)
            Fail(at, absl::StrCat("a time ", change, " ns later"), absl::StrCat("at most ", most));
          context.nanoseconds += static_cast<int64_t>(change);
          continue;
        }
        default:
          Fail(at, absl::StrCat("operation ", first & 7), absl::StrCat("less than ", record::kOps));
      }
      if ((first >> 3) != 0 && event.what != RecordEvent::What::kAllocate) {
        Fail(at, absl::StrCat("operation byte ", first), "no bits above the operation's");
      }
      into.push_back(event);
    }
  }

  Bytes& bytes_;
  const std::string& name_;
  Record record_;
  std::map<uint32_t, uint32_t> index_of_;
  std::vector<char> payload_;
  const char *begin_ = nullptr, *next_ = nullptr, *end_ = nullptr;
  uint64_t payload_at_ = 0;
  uint64_t all_bytes_ = 0;
};

}  // namespace

uint32_t Record::Name(absl::string_view text) {
  if (indices_.empty()) {
    for (uint32_t i = 0; i < names.size(); ++i) indices_.emplace(names[i], i);
  }
  const auto [found, added] =
      indices_.emplace(std::string(text), static_cast<uint32_t>(names.size()));
  if (added) names.emplace_back(text);
  return found->second;
}

Record ParseRecord(absl::string_view bytes, const std::string& file_name) {
  TextBytes text(bytes);
  return Reader(text, file_name).Read();
}

Record ReadRecord(const std::string& path, uint64_t max_bytes) {
  FileReader file(path);
  if (file.size() > max_bytes) {
    ThrowResourceExhausted(
        absl::StrCat(file.name(), ": found ", file.size(), " bytes, expected at most ", max_bytes));
  }
  FileBytes bytes(file);
  return Reader(bytes, file.name()).Read();
}

}  // namespace tidepool
