#include "tidepool/memory/planning/problem_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/error.h"

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
      FailInColumn(place, column, absl::StrCat("missing in the header ", Quoted(line),
                                               ", expected id,lower,upper,size"));
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
    FailInColumn(place, kUpper, absl::StrCat("found ", buffer.upper, ", expected more than lower ",
                                             buffer.lower));
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

// Owns an open descriptor and the name of a file that is removed unless Commit was reached.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : target_(path), path_(absl::StrCat(path, ".", getpid(), ".tmp")) {
    struct stat existing;
    if (stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
      // A rename would put a plain file in the place of a device.
      ThrowInvalidArgument(absl::StrCat("write ", path,
                                        ": found a folder, device or pipe, expected a regular "
                                        "file or none"));
    }
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) ThrowErrno(errno, absl::StrCat("create ", path_));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!committed_) unlink(path_.c_str());
  }

  void Write(absl::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) ThrowErrno(errno, absl::StrCat("write ", path_));
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

  void Commit() {
    if (fsync(descriptor_) != 0) ThrowErrno(errno, absl::StrCat("fsync ", path_));
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (close(descriptor) != 0) ThrowErrno(errno, absl::StrCat("close ", path_));
    if (rename(path_.c_str(), target_.c_str()) != 0) {
      ThrowErrno(errno, absl::StrCat("rename ", path_, " to ", target_));
    }
    committed_ = true;
  }

 private:
  const std::string target_;
  const std::string path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace

NamedProblem ParseProblem(absl::string_view text, const std::string& file_name) {
  NamedProblem problem;
  Header header;
  Place place{file_name, 0};
  while (!text.empty()) {
    ++place.line;
    const size_t end = text.find('\n');
    absl::string_view line = text.substr(0, end);
    text = end == absl::string_view::npos ? absl::string_view() : text.substr(end + 1);
    absl::ConsumeSuffix(&line, "\r");
    if (place.line == 1) {
      header = ParseHeader(place, line);
    } else {
      ParseRow(place, header, line, problem);
    }
  }
  if (place.line == 0) {
    ThrowDataLoss(absl::StrCat(file_name, ":1: found an empty file, expected a header such as ",
                               "id,lower,upper,size"));
  }
  return problem;
}

NamedProblem ReadProblemFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) ThrowErrno(errno, absl::StrCat("open ", path));
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(descriptor);
      ThrowErrno(error, absl::StrCat("read ", path));
    }
    if (count == 0) break;
    text.append(chunk, static_cast<size_t>(count));
  }
  close(descriptor);
  return ParseProblem(text, path);
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
  TemporaryFile file(path);
  file.Write(FormatProblem(problem));
  file.Commit();
}

}  // namespace tidepool
