// Placement problems and recorded traces in CSV.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace tidepool {
namespace {

std::vector<std::string> Problems() {
  std::string trace = "id,lower,upper,size\n";
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&trace, i, ",", i, ",", i + 1 + i % 7, ",", 64 * (i % 9), "\n");
  return {"id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n",
          "buffer,begin,end,size,offset\r\nx,0,3,4,8\r\ny,-5,9223372036854775806,0,0\r\n",
          "size,offset,upper,lower,id\n1,2,4,3,\n",
          "id,lower,upper,size",
          trace,
          "id,lower,upper,size\nb1,0,9223372036854775808,4\n"};
}

// A field or a line.
void MutateProblem(ByteMutator& mutator, std::string& bytes) {
  std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
  std::string& line = lines[mutator.Below(lines.size())];
  switch (mutator.Below(4)) {
    case 0:
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(mutator.Below(lines.size())), line);
      break;
    case 1:
      std::swap(line, lines[mutator.Below(lines.size())]);
      break;
    default: {
      std::vector<std::string> fields = absl::StrSplit(line, ',');
      std::string& field = fields[mutator.Below(fields.size())];
      const bool negative = mutator.Below(8) == 0;
      field = absl::StrCat(negative ? "-" : "", mutator.Number(100));
      if (mutator.Below(6) == 0) fields.push_back(field);
      line = absl::StrJoin(fields, ",");
    }
  }
  bytes = absl::StrJoin(lines, "\n");
}

void ReadProblem(const std::string& bytes) {
  std::string read;  // the file and the text are the same
  try {
    read = FormatProblem(ReadProblemFile(FuzzFile(bytes)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
  }
  NamedProblem problem;
  try {
    problem = ParseProblem(bytes, "case");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("case:"), 0u);
    EXPECT_EQ(read, "");
    throw;
  }
  ASSERT_EQ(problem.ids.size(), problem.buffers.size());
  for (const LifetimeBuffer& buffer : problem.buffers) {
    ASSERT_LT(buffer.lower, buffer.upper);
    ASSERT_GE(buffer.size, 0);
  }
  const std::string formatted = FormatProblem(problem);
  ASSERT_EQ(FormatProblem(ParseProblem(formatted, "again")), formatted);
  ASSERT_EQ(read, formatted);
}

TIDEPOOL_FUZZ_TARGET(
    Problem, {.corpus = &Problems, .mutate = &MutateProblem, .run = &ReadProblem, .cases = 10000});

}  // namespace
}  // namespace tidepool
