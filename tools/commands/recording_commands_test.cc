// tidepool replay, advise and memory as a user runs them, on the record of a program.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/recording/record.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

RunResult Tidepool(const std::vector<std::string>& arguments) {
  return RunProgram(DataPath("tools/commands/tidepool_records"), arguments);
}

// Of a program that knows nothing of recording.
const std::string& Recorded() {
  static const std::string path = [] {
    const std::string file = NewFolder() + "/program.rec";
    setenv("TIDEPOOL_RECORD", file.c_str(), 1);
    const RunResult result = RunProgram(DataPath("memory/recording/recorded_program"), {});
    unsetenv("TIDEPOOL_RECORD");
    EXPECT_EQ(result.status, 0) << result.err;
    return file;
  }();
  return path;
}

TEST(RecordingCommands, AreReplay) {
  const Record record = ReadRecord(Recorded());
  EXPECT_TRUE(record.ended);
  EXPECT_GT(record.events.size(), 1000u);
  const RunResult result = Tidepool({"replay", Recorded(), "--runs=2"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              ContainsRegex("[1-9][0-9]* cycles \\(marked\\), bound [0-9.]+ MiB; 2 runs"));
  for (const char* const allocator :
       {"workspace", "raw", "pool", "heap", "glibc", "tcmalloc", "mimalloc", "jemalloc"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("\n") + allocator));
  }
  EXPECT_THAT(result.out,
              ContainsRegex("\nworkspace: [1-9][0-9]* plans?, made in [0-9.]+ ms of that time\n"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("\nglibc: ")));
  const RunResult as_json =
      Tidepool({"replay", Recorded(), "--allocator=glibc,workspace", "--runs=2", "--json"});
  ASSERT_EQ(as_json.status, 0) << as_json.err;
  const auto json = nlohmann::json::parse(as_json.out);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["allocator"], "workspace");
  EXPECT_EQ(json["results"][1]["runs"].size(), 2u);
  EXPECT_GT(json["results"][1]["runs"][0]["hits"], json["results"][1]["runs"][0]["spills"]);
  EXPECT_GT(json["results"][1]["runs"][0]["plans"], 0);
  EXPECT_GT(json["results"][1]["planning_nanoseconds"], 0);
  EXPECT_EQ(json["results"][0]["planning_nanoseconds"], 0);
}

TEST(RecordingCommands, AreAdvise) {
  const RunResult result = Tidepool({"advise", Recorded(), "--runs=1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("as the program marked them"));
  EXPECT_THAT(result.out, HasSubstr("Workspace workspace(\""));
  EXPECT_THAT(result.out, ContainsRegex("\nglibc +[0-9]"));
  const RunResult as_json = Tidepool({"advise", Recorded(), "--runs=0", "--json"});
  ASSERT_EQ(as_json.status, 0) << as_json.err;
  EXPECT_EQ(nlohmann::json::parse(as_json.out)["cycles_by"], "marks");
}

TEST(RecordingCommands, TakeWhatLiesBeforeADamagedBlock) {
  std::string bytes = ReadWhole(Recorded());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] + 1);
  const std::string path = NewFolder() + "/damaged.rec";
  std::ofstream(path, std::ios::binary) << bytes;
  const RunResult replay = Tidepool({"replay", path, "--allocator=glibc", "--runs=1"});
  EXPECT_EQ(replay.status, 0);
  EXPECT_THAT(replay.err, ContainsRegex("damaged.rec is damaged, offset [0-9]+: found checksum "
                                        "[0-9]+, expected [0-9]+, .*; the last [0-9]+ bytes"));
  EXPECT_THAT(replay.out, ContainsRegex("\nglibc +[0-9]"));
  const RunResult report = Tidepool({"memory", path});
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("it is damaged, offset "));
}

TEST(RecordingCommands, TakeSnapshotsOfPyTorch) {
  const std::string snapshot = DataPath("memory/profile/testdata/snapshot.pickle");
  const RunResult replay =
      Tidepool({"replay", snapshot, "--allocator=glibc,workspace", "--runs=1"});
  ASSERT_EQ(replay.status, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("1 thread, "));
  EXPECT_THAT(replay.out, ContainsRegex("\nworkspace +[0-9]"));
  const RunResult advice = Tidepool({"advise", snapshot, "--runs=0"});
  ASSERT_EQ(advice.status, 0) << advice.err;
  const RunResult report = Tidepool({"memory", snapshot});
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("stream 0"));
  EXPECT_THAT(Tidepool({"memory", snapshot, snapshot}).out, HasSubstr("no difference"));
}

TEST(RecordingCommands, AreMemory) {
  const RunResult report = Tidepool({"memory", Recorded()});
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("record of arrays"));
  EXPECT_THAT(report.out, HasSubstr("\nowner "));
  EXPECT_THAT(report.out, HasSubstr("never released"));
  const RunResult difference = Tidepool({"memory", Recorded(), Recorded(), "--lines=3"});
  ASSERT_EQ(difference.status, 0) << difference.err;
  EXPECT_THAT(difference.out, HasSubstr("no difference"));
  const RunResult as_json = Tidepool({"memory", Recorded(), "--json"});
  EXPECT_GT(nlohmann::json::parse(as_json.out)["peak_bytes"], 0);
}

TEST(RecordingCommands, RefuseBadInputInALine) {
  const std::string folder = NewFolder();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = Tidepool(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, testing::StartsWith("tidepool " + arguments[0] + ": "));
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  };
  std::ofstream(folder + "/text") << "this is no record, nor is it anything else that is known";
  for (const std::string command : {"replay", "advise", "memory"}) {
    refused({command}, "found 0 arguments, expected FILE");
    refused({command, folder + "/none"}, "none: ");
    refused({command, folder + "/text"},
            "offset 0: found other bytes, expected \"tidepool record\"");
    refused({command, folder}, "");
    refused({command, Recorded(), "--runs=x"},
            command == "memory" ? "unknown flag --runs" : "flag --runs is \"x\"");
  }
  refused({"replay", Recorded(), "--allocator=mine"},
          "flag --allocator has \"mine\", expected all, or some of workspace,raw");
  refused({"replay", Recorded(), "--runs=0"}, "flag --runs is 0, expected 1 to 1000");
  refused({"replay", Recorded(), Recorded()}, "expected a flag");
  refused({"memory", Recorded(), "--lines=0"}, "flag --lines is 0");
  // A file whose header is damaged names the place.
  std::string bytes = ReadWhole(Recorded());
  bytes[30] = static_cast<char>(bytes[30] + 1);
  std::ofstream(folder + "/damaged", std::ios::binary) << bytes;
  refused({"replay", folder + "/damaged"}, "damaged: offset 44: found checksum ");
}

TEST(RecordingCommands, HaveHelpThatFitsOnAScreen) {
  for (const char* const command : {"replay", "advise", "memory"}) {
    const RunResult result = Tidepool({command, "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr(std::string("tidepool ") + command + " FILE"));
    size_t lines = 0, begin = 0;
    for (size_t end; (end = result.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      ++lines;
      EXPECT_LE(end - begin, 100u) << result.out.substr(begin, end - begin);
    }
    EXPECT_LE(lines, 24u);
  }
}

}  // namespace
}  // namespace tidepool::tools
