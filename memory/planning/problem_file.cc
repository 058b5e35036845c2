#include "tidepool/memory/planning/problem_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

enum Column { kId, kLower, kUpper, kSize, kOffset, kNumColumns };
constexpr const char* kColumnNames[] = {"id", "lower", "upper", "size", "offset"};

// Where the columns of a file are.
struct Header {
  std::array<int, kNumColumns> position = {-1, -1, -1, -1, -1};
  bool upper_is_inclusive = false;
  size_t num_columns = 0;
};

struct Place {
  const std::string& file_name;
  int64_t line;
};

// A field as a message can show it: on one line, and not longer than one.
std::string Quoted(absl::string_view field) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("\"", absl::CHexEscape(field.substr(0, kLongest)),
                      field.size() > kLongest ? "..." : "", "\"");
}

[[noreturn]] void Fail(const Place& place, const std::string& message) {
  ThrowDataLoss(absl::StrCat(place.file_name, ":", place.line, ": ", message));
}

[[noreturn]] void FailInColumn(const Place& place, Column column, const std::string& message) {
  Fail(place, absl::StrCat("column ", kColumnNames[column], ": ", message));
}

Header ParseHeader(const Place& place, absl::string_view line) {
  Header header;
  for (const absl::string_view name : absl::StrSplit(line, ',')) {
    Column column;
    if (name == "id" || name == "buffer" || name == "buffer_id") {
      column = kId;
    } else if (name == "lower" || name == "begin" || name == "start") {
      column = kLower;
    } else if (name == "upper" || name == "end") {
      column = kUpper;
      header.upper_is_inclusive = name == "end";
    } else if (name == "size") {
      column = kSize;
    } else if (name == "offset") {
      column = kOffset;
    } else {
      Fail(place, absl::StrCat("header: found column ", Quoted(name),
                               ", expected id, lower, upper, size and optionally offset"));
    }
    if (header.position[column] >= 0) {
      FailInColumn(place, column, "found twice in the header, expected once");
    }
    header.position[column] = static_cast<int>(header.num_columns++);
  }
  for (const Column column : {kId, kLower, kUpper, kSize}) {
    if (header.position[column] < 0) {
      FailInColumn(
          place, column,
          absl::StrCat("missing in the header ", Quoted(line), ", expected id,lower,upper,size"));
    }
  }
  return header;
}

int64_t ParseNumber(const Place& place, Column column, absl::string_view field) {
  int64_t value;
  // SimpleAtoi alone would also take surrounding blanks and a plus sign.
  const bool plain = !field.empty() && (field[0] == '-' || absl::ascii_isdigit(field[0])) &&
                     absl::ascii_isdigit(field.back());
  if (!plain || !absl::SimpleAtoi(field, &value)) {
    FailInColumn(place, column,
                 absl::StrCat("found ", Quoted(field), ", expected an integer of 64 bits"));
  }
  return value;
}

void ParseRow(const Place& place, const Header& header, absl::string_view line,
              NamedProblem& problem) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != header.num_columns) {
    Fail(place, absl::StrCat("found ", fields.size(), " fields in ", Quoted(line), ", expected ",
                             header.num_columns, " as in the header"));
  }
  const auto number = [&](Column column) {
    return ParseNumber(place, column, fields[header.position[column]]);
  };
  LifetimeBuffer buffer{number(kLower), number(kUpper), number(kSize)};
  if (header.upper_is_inclusive) {
    if (buffer.upper == std::numeric_limits<int64_t>::max()) {
      FailInColumn(place, kUpper, absl::StrCat("found end ", buffer.upper, ", expected less"));
    }
    ++buffer.upper;
  }
  if (buffer.upper <= buffer.lower) {
    FailInColumn(place, kUpper,
                 absl::StrCat("found ", buffer.upper, ", expected more than lower ", buffer.lower));
  }
  if (buffer.size < 0) {
    FailInColumn(place, kSize, absl::StrCat("found ", buffer.size, ", expected >= 0"));
  }
  if (header.position[kOffset] >= 0) {
    problem.offsets.push_back(number(kOffset));
    if (problem.offsets.back() < 0) {
      FailInColumn(place, kOffset,
                   absl::StrCat("found ", problem.offsets.back(), ", expected >= 0"));
    }
  }
  problem.ids.emplace_back(fields[header.position[kId]]);
  problem.buffers.push_back(buffer);
}

// Takes lines as they come.
class Parser {
 public:
  explicit Parser(const std::string& file_name) : place_{file_name, 0} {}

  // Without its end, which is LF or CR LF.
  void Line(absl::string_view line) {
    absl::ConsumeSuffix(&line, "\r");
    if (++place_.line == 1) {
      header_ = ParseHeader(place_, line);
    } else {
      ParseRow(place_, header_, line, problem_);
    }
  }
  // The whole lines at the front of `text`, which are taken off it; of the last text, all of it.
  void Lines(absl::string_view* text, bool is_last) {
    while (!text->empty()) {
      const size_t end = text->find('\n');
      if (std::min(end, text->size()) > kMostProblemLineBytes) {
        ++place_.line;
        Fail(place_, absl::StrCat("found a line of more than ", kMostProblemLineBytes,
                                  " bytes, expected fields"));
      }
      if (end == absl::string_view::npos && !is_last) return;
      Line(text->substr(0, end));
      *text = end == absl::string_view::npos ? absl::string_view() : text->substr(end + 1);
    }
  }
  NamedProblem Finish() && {
    if (place_.line == 0) {
      ThrowDataLoss(absl::StrCat(place_.file_name,
                                 ":1: found an empty file, expected a header such as ",
                                 "id,lower,upper,size"));
    }
    CheckIds();
    return std::move(problem_);
  }

 private:
  // Offsets are found by their id. Each line behind the header is a buffer.
  void CheckIds() {
    absl::flat_hash_map<absl::string_view, int64_t> lines;
    lines.reserve(problem_.ids.size());
    place_.line = 1;
    for (const std::string& id : problem_.ids) {
      const auto [first, is_new] = lines.emplace(id, ++place_.line);
      if (!is_new) {
        FailInColumn(place_, kId,
                     absl::StrCat("found ", Quoted(id), " as in line ", first->second,
                                  ", expected one that is new"));
      }
    }
  }

  Place place_;
  Header header_;
  NamedProblem problem_;
};

}  // namespace

NamedProblem ParseProblem(absl::string_view text, const std::string& file_name) {
  Parser parser(file_name);
  parser.Lines(&text, /*is_last=*/true);
  return std::move(parser).Finish();
}

NamedProblem ReadProblemFile(const std::string& path, uint64_t max_bytes) {
  FileReader file(path, Opens::kPipesToo);
  const auto refuse = [&](const char* more, uint64_t found) {
    ThrowResourceExhausted(absl::StrCat(file.name(), ": found a file of ", more, found,
                                        " bytes, expected at most ", max_bytes));
  };
  if (file.size() > max_bytes) refuse("", file.size());
  Parser parser(path);
  std::string text;
  std::byte chunk[1 << 16];
  while (const size_t count = file.Read(absl::MakeSpan(chunk))) {
    if (file.offset() > max_bytes) refuse("more than ", max_bytes);
    text.append(reinterpret_cast<const char*>(chunk), count);
    absl::string_view rest = text;
    parser.Lines(&rest, /*is_last=*/false);
    text.erase(0, text.size() - rest.size());
  }
  absl::string_view rest = text;
  parser.Lines(&rest, /*is_last=*/true);
  return std::move(parser).Finish();
}

std::string FormatProblem(const NamedProblem& problem) {
  const bool has_offsets = !problem.offsets.empty();
  std::string text = has_offsets ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n";
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const LifetimeBuffer& buffer = problem.buffers[i];
    absl::StrAppend(&text, problem.ids[i], ",", buffer.lower, ",", buffer.upper, ",", buffer.size);
    if (has_offsets) absl::StrAppend(&text, ",", problem.offsets[i]);
    text += '\n';
  }
  return text;
}

void WriteProblemFile(const std::string& path, const NamedProblem& problem) {
  AtomicFile file(path);
  file.Append(FormatProblem(problem));
  file.Commit();
}

}  // namespace tidepool
