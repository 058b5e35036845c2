#include "tidepool/tools/commands/command_line.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

ABSL_FLAG(int, number, 7, "a number");
ABSL_FLAG(uint64_t, size, 8, "a size");
ABSL_FLAG(double, rate, 0.5, "a rate");
ABSL_FLAG(int64_t, offset, 0, "an offset");
ABSL_FLAG(absl::Duration, period, absl::Seconds(1), "a period");
ABSL_FLAG(bool, verbose, false, "a switch");
ABSL_FLAG(bool, notable, true, "a switch whose name starts with no");
ABSL_FLAG(std::string, name, "", "a text");
ABSL_FLAG(int, hidden, 0, "of another command");

namespace tidepool::tools {
namespace {

using testing::HasSubstr;

int runs = 0;

struct Result {
  int status;
  std::string out, err;
};

Result RunWith(std::vector<std::string> arguments) {
  absl::SetFlag(&FLAGS_number, 7);
  absl::SetFlag(&FLAGS_size, 8);
  absl::SetFlag(&FLAGS_rate, 0.5);
  absl::SetFlag(&FLAGS_verbose, false);
  absl::SetFlag(&FLAGS_notable, true);
  absl::SetFlag(&FLAGS_name, "");
  runs = 0;
  arguments.insert(arguments.begin(), "tidepool");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = RunCommand(
      {
          {"work",
           "does it",
           "More words.",
           {"number", "size", "rate", "verbose", "notable", "name", "offset", "period"},
           [] {
             ++runs;
             return kExitOk;
           }},
          {"no", "says no", "", {}, [] { return kExitFailed; }},
          {"fail",
           "throws",
           "",
           {"name"},
           []() -> int { ThrowDataLoss("file: found " + absl::GetFlag(FLAGS_name)); }},
          {"disagree", "throws", "", {}, []() -> int { throw CommandFailed("no,\nnever"); }},
          {"exhaust", "throws", "", {}, []() -> int { throw std::bad_alloc(); }},
          {"surprise", "throws", "", {}, []() -> int { throw std::length_error("too long"); }},
      },
      static_cast<int>(argv.size()), argv.data());
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

void ExpectRuns(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "work");
  const Result result = RunWith(flags);
  EXPECT_EQ(result.status, kExitOk);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(runs, 1);
}

// One line on stderr with every one of `parts`, nothing on stdout, nothing run.
void ExpectRefused(const std::vector<std::string>& arguments, std::vector<std::string> parts) {
  SCOPED_TRACE(testing::PrintToString(arguments));
  const Result result = RunWith(arguments);
  EXPECT_EQ(result.status, kExitBadInput);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(runs, 0);
  EXPECT_THAT(result.err, testing::StartsWith("tidepool"));
  EXPECT_THAT(result.err, testing::EndsWith("\n"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
}

TEST(CommandLine, NoFlagsLeaveTheDefaults) {
  ExpectRuns({});
  EXPECT_EQ(absl::GetFlag(FLAGS_number), 7);
  EXPECT_TRUE(absl::GetFlag(FLAGS_notable));
}

TEST(CommandLine, ValuesByEqualsAndBySpace) {
  ExpectRuns({"--number=-3", "--name=a=b", "--rate", "2.5", "--size", "18446744073709551615"});
  EXPECT_EQ(absl::GetFlag(FLAGS_number), -3);
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_rate), 2.5);
  EXPECT_EQ(absl::GetFlag(FLAGS_size), UINT64_MAX);
  ExpectRuns({"--number", "-3", "--name", "-", "--name="});
  EXPECT_EQ(absl::GetFlag(FLAGS_number), -3);
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "");
  ExpectRuns({"--name=--number", "--number=1", "--number=2"});  // the last one counts
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "--number");
  EXPECT_EQ(absl::GetFlag(FLAGS_number), 2);
}

TEST(CommandLine, Booleans) {
  ExpectRuns({"--verbose", "--number=1"});
  EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
  ExpectRuns({"--verbose", "--noverbose"});
  EXPECT_FALSE(absl::GetFlag(FLAGS_verbose));
  ExpectRuns({"--verbose=true", "--notable=false"});
  EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
  EXPECT_FALSE(absl::GetFlag(FLAGS_notable));
  ExpectRuns({"--notable"});
  EXPECT_TRUE(absl::GetFlag(FLAGS_notable));
  ExpectRuns({"--nonotable"});
  EXPECT_FALSE(absl::GetFlag(FLAGS_notable));
  ExpectRefused({"work", "--verbose", "true"}, {"argument \"true\"", "expected a flag"});
  ExpectRefused({"work", "--noverbose=true"}, {"unknown flag --noverbose"});
  ExpectRefused({"work", "--verbose=maybe"}, {"--verbose is \"maybe\"", "true or false"});
}

TEST(CommandLine, UnknownFlags) {
  ExpectRefused({"work", "--numbers=1"},
                {"tidepool work: unknown flag --numbers;", "--help lists"});
  ExpectRefused({"work", "--num=1"}, {"unknown flag --num;"});
  ExpectRefused({"work", "--hidden=1"}, {"unknown flag --hidden;"});
  ExpectRefused({"work", "--nonumber"}, {"unknown flag --nonumber;"});
  ExpectRefused({"work", "--no"}, {"unknown flag --no;"});
  ExpectRefused({"work", "--"}, {"unknown flag --;"});
  ExpectRefused({"work", "--=3"}, {"unknown flag --;"});
  ExpectRefused({"work", "-number=1"}, {"argument \"-number=1\", expected a flag"});
  ExpectRefused({"work", "1"}, {"argument \"1\", expected a flag"});
  ExpectRefused({"work", ""}, {"argument \"\", expected a flag"});
}

TEST(CommandLine, BadValues) {
  ExpectRefused({"work", "--number=x"},
                {"flag --number is \"x\", expected a whole number from -2147483648 to 2147483647"});
  ExpectRefused({"work", "--number="}, {"--number is \"\""});
  ExpectRefused({"work", "--number=1.5"}, {"--number is \"1.5\""});
  ExpectRefused({"work", "--number=2147483648"}, {"--number is \"2147483648\""});
  ExpectRefused({"work", "--size=-1"}, {"--size is \"-1\"", "0 to 18446744073709551615"});
  ExpectRefused({"work", "--rate", "fast"}, {"--rate is \"fast\", expected a number"});
  ExpectRefused({"work", "--offset=1e9"},
                {"--offset is \"1e9\", expected a whole number from -9223372036854775808 to 92"});
  ExpectRefused({"work", "--period=10"},
                {"--period is \"10\", expected a time with its unit, such as 10s or 500ms;"});
  ExpectRefused({"work", "--number=1\n2"}, {"--number is \"1\\x0a2\""});
}

TEST(CommandLine, MissingValues) {
  ExpectRefused({"work", "--number"}, {"flag --number has no value"});
  ExpectRefused({"work", "--name", "--number=1"}, {"flag --name has no value"});
}

TEST(CommandLine, UnknownCommands) {
  ExpectRefused({"wrok"},
                {"unknown command \"wrok\"; commands: work no fail disagree exhaust surprise"});
  ExpectRefused({"a\nb"}, {"unknown command \"a\\x0ab\""});
  ExpectRefused({"help", "wrok"}, {"unknown command \"wrok\""});
  ExpectRefused({"--number=1", "work"}, {"unknown command \"--number=1\""});
  ExpectRefused({""}, {"unknown command \"\""});
}

TEST(CommandLine, ExitStatuses) {
  EXPECT_EQ(RunWith({"work"}).status, 0);
  EXPECT_EQ(RunWith({"no"}).status, 1);
  ExpectRefused({"fail", "--name=a\r\nb\x1b"}, {"tidepool fail: file: found a\\x0d\\x0ab\\x1b\n"});
  const Result disagrees = RunWith({"disagree"});
  EXPECT_EQ(disagrees.status, kExitFailed);
  EXPECT_EQ(disagrees.err, "tidepool disagree: no,\\x0anever\n");
  ExpectRefused({"exhaust"}, {"tidepool exhaust: out of memory"});
  ExpectRefused({"surprise"}, {"tidepool surprise: too long"});
}

TEST(CommandLine, ProgramsWithoutCommands) {
  const auto run = [](std::vector<std::string> arguments, absl::FunctionRef<int()> program) {
    arguments.insert(arguments.begin(), "path/of/it");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    testing::internal::CaptureStderr();
    const int status = RunProgram("it", argv, program);
    return absl::StrCat(status, " ", testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(run({}, [] { return kExitOk; }), "0 ");
  EXPECT_EQ(run({}, [] { return kExitFailed; }), "1 ");
  EXPECT_EQ(run({"more"}, [] { return kExitOk; }), "2 it: argument \"more\", expected a flag\n");
  EXPECT_EQ(run({}, []() -> int { throw CommandFailed("no"); }), "1 it: no\n");
  EXPECT_EQ(run({}, []() -> int { throw std::bad_alloc(); }), "2 it: out of memory\n");
  EXPECT_EQ(run({}, []() -> int { ThrowDataLoss("a\nb"); }), "2 it: a\\x0ab\n");
}

TEST(CommandLine, Overview) {
  for (const char* asks : {"help", "--help", "-h"}) {
    const Result result = RunWith({asks});
    EXPECT_EQ(result.status, kExitOk);
    EXPECT_EQ(result.err, "");
    for (const char* part : {"usage: tidepool COMMAND", "  work       does it", "surprise"}) {
      EXPECT_THAT(result.out, HasSubstr(part));
    }
  }
  const Result none = RunWith({});
  EXPECT_EQ(none.status, kExitBadInput);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("usage: tidepool COMMAND"));
}

TEST(CommandLine, HelpOfACommand) {
  const std::vector<std::vector<std::string>> ways = {
      {"help", "work"}, {"work", "--help"}, {"work", "-h"}, {"work", "--bad", "--help"}};
  for (const auto& arguments : ways) {
    const Result result = RunWith(arguments);
    EXPECT_EQ(result.status, kExitOk);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(runs, 0);
    for (const char* part :
         {"tidepool work: does it", "--number           a number (default: \"7\")", "--verbose",
          "More words."}) {
      EXPECT_THAT(result.out, HasSubstr(part));
    }
    EXPECT_THAT(result.out, testing::Not(HasSubstr("hidden")));
  }
}

}  // namespace
}  // namespace tidepool::tools
