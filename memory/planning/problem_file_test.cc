#include "tidepool/memory/planning/problem_file.h"

#include <dirent.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

std::string ErrorOf(const std::string& text) {
  try {
    ParseProblem(text, "p.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    return error.message();
  }
  return "";
}

std::string TestFolder() {
  const std::string folder = testing::TempDir() + "/problem_file_test";
  mkdir(folder.c_str(), 0755);
  return folder;
}

int FilesIn(const std::string& folder) {
  int count = 0;
  DIR* directory = opendir(folder.c_str());
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

TEST(ParseProblem, ReadsAnyColumnOrder) {
  const NamedProblem problem =
      ParseProblem("size,upper,id,lower\r\n4,3,b1,0\r\n9223372036854775807,-1,,-3", "p.csv");
  EXPECT_EQ(problem.ids, (std::vector<std::string>{"b1", ""}));
  EXPECT_EQ(problem.buffers[0].lower, 0);
  EXPECT_EQ(problem.buffers[0].upper, 3);
  EXPECT_EQ(problem.buffers[0].size, 4);
  EXPECT_EQ(problem.buffers[1].lower, -3);
  EXPECT_EQ(problem.buffers[1].upper, -1);
  EXPECT_EQ(problem.buffers[1].size, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(problem.offsets.empty());
}

TEST(ParseProblem, ReadsOtherNamesAndInclusiveEnds) {
  const NamedProblem problem =
      ParseProblem("buffer_id,begin,end,size,offset\nx,1,1,4,8\n", "p.csv");
  EXPECT_EQ(problem.buffers[0].lower, 1);
  EXPECT_EQ(problem.buffers[0].upper, 2);
  EXPECT_EQ(problem.offsets, (std::vector<int64_t>{8}));
  EXPECT_EQ(ParseProblem("buffer,start,upper,size\nx,1,2,4\n", "p.csv").buffers[0].upper, 2);
}

TEST(ParseProblem, ReadsAHeaderAlone) {
  EXPECT_TRUE(ParseProblem("id,lower,upper,size\n", "p.csv").buffers.empty());
}

TEST(ParseProblem, ErrorsNameThePlace) {
  EXPECT_EQ(ErrorOf(""),
            "p.csv:1: found an empty file, expected a header such as id,lower,upper,size");
  EXPECT_EQ(ErrorOf("id,lower,upper\n"),
            "p.csv:1: column size: missing in the header \"id,lower,upper\", expected "
            "id,lower,upper,size");
  EXPECT_EQ(
      ErrorOf("id,lower,upper,size,gaps\n"),
      "p.csv:1: header: found column \"gaps\", expected id, lower, upper, size and optionally "
      "offset");
  EXPECT_EQ(ErrorOf("id,lower,begin,upper,size\n"),
            "p.csv:1: column lower: found twice in the header, expected once");
  const std::string header = "id,lower,upper,size\n";
  EXPECT_EQ(ErrorOf(header + "a,0,1,4\nb,0,1\n"),
            "p.csv:3: found 3 fields in \"b,0,1\", expected 4 as in the header");
  EXPECT_EQ(ErrorOf(header + "a,0,1,4\n\nb,0,1,4\n"),
            "p.csv:3: found 1 fields in \"\", expected 4 as in the header");
  EXPECT_EQ(ErrorOf(header + "a,0,1,4 \n"),
            "p.csv:2: column size: found \"4 \", expected an integer of 64 bits");
  EXPECT_EQ(ErrorOf(header + "a,+1,2,4\n"),
            "p.csv:2: column lower: found \"+1\", expected an integer of 64 bits");
  EXPECT_EQ(ErrorOf(header + "a,0,9223372036854775808,4\n"),
            "p.csv:2: column upper: found \"9223372036854775808\", expected an integer of 64 bits");
  EXPECT_EQ(ErrorOf(header + "a,5,5,4\n"),
            "p.csv:2: column upper: found 5, expected more than lower 5");
  EXPECT_EQ(ErrorOf(header + "a,0,1,-4\n"), "p.csv:2: column size: found -4, expected >= 0");
  EXPECT_EQ(ErrorOf("id,lower,upper,size,offset\na,0,1,4,-1\n"),
            "p.csv:2: column offset: found -1, expected >= 0");
  EXPECT_EQ(ErrorOf("id,lower,end,size\na,0,9223372036854775807,4\n"),
            "p.csv:2: column upper: found end 9223372036854775807, expected less");
  EXPECT_EQ(ErrorOf(header + "a,0,1,4\nb,0,1,4\na,5,6,4\n"),
            "p.csv:4: column id: found \"a\" as in line 2, expected one that is new");
  EXPECT_EQ(ErrorOf("size,upper,lower,id\n4,1,0,\n4,1,0,"),
            "p.csv:3: column id: found \"\" as in line 2, expected one that is new");
  EXPECT_EQ(ErrorOf(header + std::string("a,\0\n,1,4\n", 9)),
            "p.csv:2: found 2 fields in \"a,\\x00\", expected 4 as in the header");
  EXPECT_LT(ErrorOf(header + "a,0,1," + std::string(1000, '7')).size(), 120);
}

TEST(ProblemFile, WritesWhatItReads) {
  const std::string path = TestFolder() + "/round.csv";
  const NamedProblem problem{{"a", "b c"}, {{0, 3, 4}, {-2, 9, 5}}, {5, 0}};
  WriteProblemFile(path, problem);
  const NamedProblem again = ReadProblemFile(path);
  EXPECT_EQ(again.ids, problem.ids);
  EXPECT_EQ(again.offsets, problem.offsets);
  EXPECT_EQ(FormatProblem(again), "id,lower,upper,size,offset\na,0,3,4,5\nb c,-2,9,5,0\n");
  NamedProblem bare = problem;
  bare.offsets.clear();
  EXPECT_EQ(FormatProblem(bare), "id,lower,upper,size\na,0,3,4\nb c,-2,9,5\n");
  EXPECT_EQ(FilesIn(TestFolder()), 1);
  std::remove(path.c_str());
}

TEST(ProblemFile, LeavesNothingBehindOnFailure) {
  const std::string folder = TestFolder() + "/target.csv";
  mkdir(folder.c_str(), 0755);
  // A folder that is not empty cannot be renamed over.
  std::ofstream(folder + "/x") << "x";
  EXPECT_THROW(WriteProblemFile(folder, NamedProblem{}), Error);
  EXPECT_EQ(FilesIn(TestFolder()), 1);
  std::remove((folder + "/x").c_str());
  std::remove(folder.c_str());
}

TEST(ProblemFile, ReportsWhatTheSystemRefuses) {
  try {
    ReadProblemFile("/nonexistent/p.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(error.message(), "open /nonexistent/p.csv: No such file or directory");
  }
  EXPECT_THROW(WriteProblemFile("/nonexistent/p.csv", NamedProblem{}), Error);
  EXPECT_THROW(ReadProblemFile(TestFolder()), Error);
}

// Damaged text is read completely or refused with an Error on one line: nothing else, no crash.
TEST(ParseProblem, SurvivesDamage) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::string whole = "id,lower,upper,size,offset\nb1,0,3,4,8\nb2,3,9,4,8\nb3,-5,21,4,0\n";
  const std::string alphabet = std::string("0123456789-,\n\r abidsize\xff", 25) + '\0';
  int accepted = 0;
  for (int round = 0; round < 100000; ++round) {
    std::string text = whole;
    const int edits = std::uniform_int_distribution<int>(1, 4)(random);
    for (int edit = 0; edit < edits; ++edit) {
      const size_t at = random() % text.size();
      const char byte = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
      if (text.empty()) text = ",";
    }
    try {
      const NamedProblem problem = ParseProblem(text, "p.csv");
      ++accepted;
      ASSERT_EQ(problem.ids.size(), problem.buffers.size());
      const std::string formatted = FormatProblem(problem);
      ASSERT_EQ(FormatProblem(ParseProblem(formatted, "p.csv")), formatted);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), absl::StatusCode::kDataLoss);
      ASSERT_EQ(error.message().substr(0, 6), "p.csv:");
      ASSERT_EQ(error.message().find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 90000);
}

// What never ends is refused by its first line, or by the limit; what is read is not held beside
// what it says.
TEST(ProblemFile, ReadsNoMoreThanALimit) {
  const auto refusal = [](const std::string& path, uint64_t most) {
    try {
      ReadProblemFile(path, most);
    } catch (const Error& error) {
      return error;
    }
    return Error(absl::StatusCode::kOk, "");
  };
  for (const char* const endless : {"/dev/zero", "/dev/full"}) {
    const Error error = refusal(endless, kMostProblemFileBytes);
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(error.message(),
              std::string(endless) + ":1: found a line of more than 65536 bytes, expected fields");
  }
  const std::string path = testing::TempDir() + "/limited.csv",
                    pipe = testing::TempDir() + "/problem_pipe";
  const std::string text = "id,lower,upper,size\na,0,1,2\n";
  std::ofstream(path) << text;
  EXPECT_EQ(ReadProblemFile(path, text.size()).buffers.size(), 1);
  Error error = refusal(path, text.size() - 1);
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.message(), path + ": found a file of 28 bytes, expected at most 27");
  // A pipe that goes on for ever, in lines.
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);
  std::thread writer([&] {
    std::ofstream file(pipe);
    file << text;
    while (file) file << "a,0,1,2\n";
  });
  error = refusal(pipe, 100000);
  writer.join();
  EXPECT_EQ(error.message(),
            pipe + ": found a file of more than 100000 bytes, expected at most 100000");
  std::thread ends([&] { std::ofstream(pipe) << text << "b,1,2,3"; });
  EXPECT_EQ(ReadProblemFile(pipe).ids, (std::vector<std::string>{"a", "b"}));
  ends.join();
}

// Renaming over /dev/null would break the machine for everybody.
TEST(ProblemFileTest, DevicesAreRefusedAndStay) {
  const NamedProblem problem = ParseProblem("id,lower,upper,size\na,0,1,2\n", "x");
  EXPECT_THROW(WriteProblemFile("/dev/null", problem), Error);
  EXPECT_THROW(WriteProblemFile("/tmp", problem), Error);
}

}  // namespace
}  // namespace tidepool
