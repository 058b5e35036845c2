// A record's file from events that are there already.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/recording/record.h"

namespace tidepool {
namespace {

using record::BlockHeader;
using record::BlockType;
using record::FileHeader;

using Block = record::BlockBuffer<size_t{64} << 10>;

void Append(std::string& out, Block& block, BlockType type, uint32_t thread) {
  const size_t used = block.used();
  if (used == 0) return;
  size_t bytes;
  const char* const data = block.Finish(type, thread, used, &bytes);
  out.append(data, bytes);
  block.Clear();
}

void AppendBlock(std::string& out, BlockType type, absl::string_view payload) {
  BlockHeader header = {record::kBlockMarker,
                        static_cast<uint32_t>(type),
                        static_cast<uint32_t>(payload.size()),
                        0,
                        0,
                        0,
                        0,
                        0};
  header.checksum = record::Crc32(record::Crc32(0, &header, offsetof(BlockHeader, checksum)),
                                  payload.data(), payload.size());
  out.append(reinterpret_cast<const char*>(&header), sizeof(header));
  out.append(payload.data(), payload.size());
}

[[noreturn]] void Refuse(const RecordEvent& event, const std::string& found,
                         const std::string& expected) {
  ThrowInvalidArgument(
      absl::StrCat("record: event ", event.number, ": found ", found, ", expected ", expected));
}

void Check(const Record& record, const RecordEvent& event) {
  const auto limit = [&](const char* what, uint64_t value, uint64_t below) {
    if (value >= below)
      Refuse(event, absl::StrCat(what, " ", value), absl::StrCat("less than ", below));
  };
  limit("owner", event.owner, record.names.size());
  limit("device", event.device, record.names.size());
  limit("thread", event.thread, record::kMostThreads);
  limit("alignment of two to the power", event.alignment_log2, record::kMostAlignmentLog2 + 1);
  limit("kind of memory", static_cast<uint64_t>(event.kind), kMemoryKinds);
  if (event.what == RecordEvent::What::kAllocate) limit("bytes", event.bytes, record::kMostBytes);
}

void Encode(Block& block, const RecordEvent& event) {
  switch (event.what) {
    case RecordEvent::What::kAllocate:
      return block.Allocate(event.number, event.nanoseconds, event.block, event.bytes,
                            event.alignment_log2,
                            {event.owner, event.device, static_cast<uint8_t>(event.kind)});
    case RecordEvent::What::kFree:
      return block.Free(event.number, event.nanoseconds, event.block);
    case RecordEvent::What::kCycleBegin:
    case RecordEvent::What::kCycleEnd:
      return block.Cycle(event.number, event.nanoseconds,
                         event.what == RecordEvent::What::kCycleBegin, event.owner, event.bytes);
  }
}

std::vector<const RecordEvent*> ByNumber(const Record& record,
                                         const std::vector<RecordEvent>& events) {
  std::vector<const RecordEvent*> sorted;
  sorted.reserve(events.size());
  for (const RecordEvent& event : events) {
    Check(record, event);
    sorted.push_back(&event);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const RecordEvent* a, const RecordEvent* b) { return a->number < b->number; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->number == sorted[i - 1]->number) {
      Refuse(*sorted[i], "another event of this number", "a number of its own");
    }
  }
  return sorted;
}

}  // namespace

std::string FormatRecord(const Record& record) {
  if (record.names.empty() || !record.names[0].empty() ||
      record.names.size() > record::kMostNames) {
    ThrowInvalidArgument(absl::StrCat("record: found ", record.names.size(),
                                      " names, expected at most ", record::kMostNames,
                                      ", the first of them empty"));
  }
  std::string out;
  FileHeader header = {};
  std::memcpy(header.magic, record::kMagic, sizeof(header.magic));
  header.version = record::kVersion;
  header.source = static_cast<uint32_t>(record.source);
  header.process = record.process;
  header.began = record.began;
  header.checksum = record::Crc32(0, &header, offsetof(FileHeader, checksum));
  out.append(reinterpret_cast<const char*>(&header), sizeof(header));
  std::string names;
  char number[16];
  for (uint32_t id = 1; id < record.names.size(); ++id) {
    const std::string& name = record.names[id];
    if (name.size() > record::kMostNameBytes) {
      ThrowInvalidArgument(absl::StrCat("record: found a name of ", name.size(),
                                        " bytes, expected at most ", record::kMostNameBytes));
    }
    names.append(number, Block::Put(number, id));
    names.append(number, Block::Put(number, name.size()));
    names += name;
    if (names.size() > record::kMostPayloadBytes / 2) {
      AppendBlock(out, BlockType::kNames, names);
      names.clear();
    }
  }
  if (!names.empty()) AppendBlock(out, BlockType::kNames, names);

  const auto live = std::make_unique<Block>();
  for (const RecordEvent* event : ByNumber(record, record.live)) {
    if (event->what != RecordEvent::What::kAllocate) Refuse(*event, "a release", "what is live");
    if (!live->has_room()) Append(out, *live, BlockType::kLive, 0);
    Encode(*live, *event);
  }
  Append(out, *live, BlockType::kLive, 0);
  std::map<uint32_t, std::unique_ptr<Block>> blocks;
  for (const RecordEvent* event : ByNumber(record, record.events)) {
    std::unique_ptr<Block>& block = blocks[event->thread];
    if (block == nullptr) block = std::make_unique<Block>();
    if (!block->has_room()) Append(out, *block, BlockType::kEvents, event->thread);
    Encode(*block, *event);
  }
  for (auto& [thread, block] : blocks) Append(out, *block, BlockType::kEvents, thread);
  if (record.ended) AppendBlock(out, BlockType::kEnd, "");
  return out;
}

void WriteRecord(const std::string& path, const Record& record) {
  const std::string bytes = FormatRecord(record);
  AtomicFile file(path);
  file.Append(bytes);
  file.Commit();
}

}  // namespace tidepool
