// A record: what a program asked of memory, thread by thread, as read from a file (docs/recording.md)
// or made by whoever has such events from elsewhere.
//
//   const Record record = ReadRecord("trace.rec");
//   for (const RecordEvent& event : record.events) ...          // by number
//
// From other tools' recordings: fill a Record and write it. The file is what TIDEPOOL_RECORD makes,
// for `tidepool replay`, `advise` and `memory`.
//
//   Record record;
//   record.source = record::Source::kForeign;
//   const uint32_t owner = record.Name("optimizer");
//   record.events.push_back({.what = RecordEvent::What::kAllocate, .number = 1, .block = 0x7f00,
//                            .bytes = 4096, .owner = owner});
//   WriteRecord("trace.rec", record);
//
// Threads: a value.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/recording/record_format.h"

namespace tidepool {

// A request, a release, or the beginning or end of a cycle.
struct RecordEvent {
  // Cycles are a workspace's, or whatever the program marks so.
  enum class What : uint8_t { kAllocate, kFree, kCycleBegin, kCycleEnd };
  What what = What::kAllocate;
  uint8_t alignment_log2 = 0;                // of kAllocate; 0: none was asked for
  MemoryKind kind = MemoryKind::kAllocated;  // of kAllocate: what the bytes are for
  uint32_t thread = 0;                       // from 0, in the order of their first events
  uint64_t number =
      0;  // of this event alone; what happened behind another thread's has a larger one
  int64_t nanoseconds = 0;  // since the beginning; of a coarse clock
  // Of kAllocate and kFree. An array's number or an address: of one block at a time, maybe of
  // another one after its kFree.
  uint64_t block = 0;
  uint64_t bytes = 0;   // as asked for; of kCycleBegin and kCycleEnd: the generation
  uint32_t owner = 0;   // index into names; of cycles: the workspace's or what else it is called
  uint32_t device = 0;  // index into names; 0: the host

  friend bool operator==(const RecordEvent&, const RecordEvent&) = default;
};

// All events of a recording, and what they name.
struct Record {
  record::Source source = record::Source::kArrays;  // whose requests they are
  uint64_t process = 0;                             // its number; 0: not known
  int64_t began = 0;                                // nanoseconds since 1970
  std::vector<std::string> names = {""};            // of owners, devices and cycles; [0] is empty
  std::vector<RecordEvent> live;    // there when recording began; block 0: several together
  std::vector<RecordEvent> events;  // by number, which is that of no other
  uint32_t threads = 0;             // more than the largest RecordEvent::thread

  // Of a file that was read:
  bool ended = true;          // in order; else its program was killed, or records still
  uint64_t bytes_read = 0;    // up to the end of its last whole block
  uint64_t bytes_behind = 0;  // of a block that is not whole, or damaged and what is behind it
  // Where a damaged block ended the reading: "offset <n>: found ..., expected ..."; else empty.
  std::string damage;

  // The index of that text, which is added when it is not there.
  uint32_t Name(absl::string_view text);

 private:
  std::map<std::string, uint32_t> indices_;
};

// Unless the caller says otherwise.
inline constexpr uint64_t kMostRecordFileBytes = uint64_t{1} << 30;

// A file that ends within a block, or has one that its checksum does not hold for, is read up to
// there: `ended` is false then. Throws Error(kDataLoss) "<file>: offset <n>: found ..., expected ..."
// for a damaged header of the file and for blocks that are whole and say what cannot be, what the
// system refuses with its errno, kResourceExhausted beyond `max_bytes`. Memory: some 25 times the
// file's size.
Record ReadRecord(const std::string& path, uint64_t max_bytes = kMostRecordFileBytes);
Record ParseRecord(absl::string_view bytes, const std::string& file_name);

// The bytes of its file. Events may be in any order. Throws kInvalidArgument for numbers that are
// not the event's own, names there are not, texts and sizes beyond what record_format.h allows.
std::string FormatRecord(const Record& record);
// Whole or not at all (AtomicFile).
void WriteRecord(const std::string& path, const Record& record);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_H_
