// What a record, or memory that the ledger told as JSON, comes to: by kind, owner and size, at the
// most and in the end; and what is between two of them.
//
//   const RecordReport before = ReadReport("before.rec"), after = ReadReport("after.rec");
//   std::fputs(after.ToString(10).c_str(), stdout);
//   std::fputs(DifferenceToString(before, after, 10).c_str(), stdout);
//
// Threads: values.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_REPORT_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/recording/record.h"

namespace tidepool {

struct RecordReport {
  // Of everything, or of one kind, owner, device or size.
  struct Part {
    int64_t requests = 0;         // 0 of what is not a record
    int64_t requested_bytes = 0;  // of all of them; likewise
    int64_t peak_bytes = 0;       // its own most
    int64_t at_peak_bytes = 0;    // when all together had the most; of JSON: as peak_bytes
    int64_t at_end_bytes = 0;     // alive in the end
  };
  // Blocks that lived for at least so many requests of all threads, and less than the next line's.
  struct Lifetime {
    uint64_t at_least;   // requests
    int64_t blocks = 0;  // that lived so long
    int64_t bytes = 0;   // of these
  };

  std::string file;    // its path, for headings
  std::string what;    // "record", "record (malloc)", "memory snapshot", "memory timeline"
  std::string remark;  // "its program was killed, or records still"; empty without one
  Part all;            // everything
  std::map<std::string, Part> devices, kinds, owners;  // owners: of each path, "#tag" behind it
  std::map<uint64_t, Part> sizes;                      // of records
  // Of JSON: in spill files ("file"), and in tiers before them by the device of their memory, whose ledger has those.
  std::map<std::string, Part> waiting;
  std::vector<Lifetime> lifetimes;                     // of records; the last line: never released
  int64_t threads = 0, cycles = 0, unknown_frees = 0;  // the last: of blocks that nobody saw made

  // `most`: lines of each table.
  std::string ToString(int most) const;
  void AddTo(JsonWriter& json, int most) const;  // members of an object
};

// A record, or JSON as MemorySnapshot::ToJson() and MemoryTimeline::ToJson() write it, whichever
// begins so. Errors as ReadRecord's; JSON has at most 64 MiB.
RecordReport ReadReport(const std::string& path);
RecordReport ReportOf(const Record& record, const std::string& file);
RecordReport ReportOfJson(const std::string& text, const std::string& file);

// What `after` has more or less than `before`, the largest changes first.
std::string DifferenceToString(const RecordReport& before, const RecordReport& after, int most);
void AddDifferenceTo(JsonWriter& json, const RecordReport& before, const RecordReport& after,
                     int most);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_REPORT_H_
