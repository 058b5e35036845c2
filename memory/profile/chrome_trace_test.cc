#include "tidepool/memory/profile/chrome_trace.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/profile/profile_changes.h"
#include "tidepool/memory/profile/testing/sample_recordings.h"

namespace tidepool {
namespace {

using nlohmann::json;

// What the format asks for of each event; returns the last counters, by track.
std::map<std::string, json> CheckTrace(const std::string& text) {
  const json trace = json::parse(text);
  EXPECT_TRUE(trace["traceEvents"].is_array());
  EXPECT_TRUE(trace["otherData"]["notes"].is_string());
  std::map<std::string, json> counters;
  std::map<std::string, double> times;
  std::map<int, double> ends;
  for (const json& event : trace["traceEvents"]) {
    EXPECT_TRUE(event["name"].is_string());
    EXPECT_TRUE(event["pid"].is_number_integer());
    EXPECT_TRUE(event["tid"].is_number_integer());
    const std::string phase = event["ph"];
    if (phase == "M") {
      EXPECT_TRUE(event["args"]["name"].is_string());
      continue;
    }
    EXPECT_GE(event["ts"].get<double>(), 0);
    if (phase == "C") {
      const std::string track = event["name"];
      EXPECT_GE(event["ts"].get<double>(), times[track]) << "in the order of time";
      times[track] = event["ts"];
      for (const auto& [kind, bytes] : event["args"].items())
        EXPECT_TRUE(bytes.is_number_integer()) << kind;
      counters[track] = event["args"];
    } else {
      EXPECT_EQ(phase, "X");
      EXPECT_GE(event["dur"].get<double>(), 0);
      const int row = event["tid"];
      EXPECT_GE(event["ts"].get<double>(), ends[row]) << "cycles of a workspace follow each other";
      ends[row] = event["ts"].get<double>() + event["dur"].get<double>() - 0.001;
    }
  }
  return counters;
}

TEST(ChromeTrace, CountersEndWithWhatThereIs) {
  const ProfileData data = TrainingRecording(60);
  const auto counters = CheckTrace(ChromeTrace(data));
  ASSERT_EQ(counters.size(), 1u);
  const json& last = counters.at("host memory of host");
  for (size_t kind = 0; kind < data.kinds.size(); ++kind) {
    if (!last.contains(data.kinds[kind])) continue;
    EXPECT_EQ(last[data.kinds[kind]], BytesAtEnd(data)[0][kind]) << data.kinds[kind];
  }
  EXPECT_EQ(last.size(), 4u);
}

TEST(ChromeTrace, TimesAreNotRounded) {
  ProfileData data = TrainingRecording(0);
  data.cycles.clear();
  data.steps = {{int64_t{9007199254740993}, 5, 0, 0, 0, false}};  // no double is
  EXPECT_THAT(ChromeTrace(data), testing::HasSubstr("\"ts\":9007199254740.993"));
}

TEST(ChromeTrace, IsNeverLargerThanItMayBe) {
  for (const ProfileData& data : {TrainingRecording(3000), UnevenRecording(30000, 3000, 3)}) {
    for (const size_t most : {size_t{100000}, size_t{1500000}, size_t{8000000}}) {
      const std::string trace = ChromeTrace(data, most);
      EXPECT_LE(trace.size(), most);
      CheckTrace(trace);
    }
  }
}

}  // namespace
}  // namespace tidepool
