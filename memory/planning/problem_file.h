// Reads and writes placement problems as CSV, the form MiniMalloc uses:
//
//   id,lower,upper,size          id,lower,upper,size,offset
//   b1,0,3,4                     b1,0,3,4,8
//
// The header names the columns, in any order: id (or buffer, buffer_id), lower (or begin, start),
// upper or end (`end` names the last tick alive, upper the first tick after it), size, and
// optionally offset. Lines end in LF or CR LF. Fields are not quoted; an id is any text without a
// comma, and names one buffer. Columns this reader does not know are refused, because ignoring one (MiniMalloc's gaps,
// alignment) would change the problem.
//
// Errors: Error(kDataLoss) "<file>:<line>: column <name>: found ..., expected ..."; what the
// system refuses is thrown with its errno (ThrowErrno).
#ifndef TIDEPOOL_MEMORY_PLANNING_PROBLEM_FILE_H_
#define TIDEPOOL_MEMORY_PLANNING_PROBLEM_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

struct NamedProblem {
  std::vector<std::string> ids;         // one for each buffer, as found
  std::vector<LifetimeBuffer> buffers;  // what is to be placed
  std::vector<int64_t> offsets;         // empty if the file has no offset column
};

inline constexpr size_t kMostProblemLineBytes = size_t{1} << 16;  // of files that are read
// Unless the caller says otherwise: some ten million buffers, for which no search ends.
inline constexpr uint64_t kMostProblemFileBytes = uint64_t{256} << 20;

// `file_name` is used in error messages only.
NamedProblem ParseProblem(absl::string_view text, const std::string& file_name);
// A file or a pipe, line by line: what never ends is refused by its first line, which is longer
// than a line may be, or by `max_bytes` (kResourceExhausted). Memory: some 25 times the file's
// size.
NamedProblem ReadProblemFile(const std::string& path, uint64_t max_bytes = kMostProblemFileBytes);

// Columns id,lower,upper,size, and offset unless `problem.offsets` is empty.
std::string FormatProblem(const NamedProblem& problem);

// Writes a file beside `path`, flushes it to disk and renames it over `path`: on failure what was
// at `path` is untouched and nothing is left beside it.
void WriteProblemFile(const std::string& path, const NamedProblem& problem);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_PROBLEM_FILE_H_
