#include "tidepool/tools/benchmarks/report.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace tidepool::tools {
namespace {

Report Example(bool with_peer) {
  Report report;
  report.context = {{"machine", "abacus"}};
  CaseResult result;
  result.training_case = {"lenet", 32, 2, "adam"};
  result.tidepool = {{2, 1, 4}, {3, 2, 8}, 7, 431080, 2048, 0.5};
  if (with_peer) result.peer = SideResult{{6, 4, 4}, {6, 6, 6}, 5, 431080, -1, 0.25};
  report.cases.push_back(result);
  return report;
}

TEST(Spread, OddEvenAndSingle) {
  EXPECT_EQ(SpreadOf({3, 1, 2}).median, 2);
  EXPECT_EQ(SpreadOf({4, 1, 2, 3}).median, 2.5);
  const Spread one = SpreadOf({7});
  EXPECT_EQ(one.min, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.max, 7);
}

TEST(Report, RatioIsOfEachRound) {
  const Spread ratio = RatioOf({2, 1, 4}, {6, 4, 4});
  EXPECT_EQ(ratio.min, 1);
  EXPECT_EQ(ratio.median, 3);
  EXPECT_EQ(ratio.max, 4);
}

TEST(Report, Markdown) {
  const std::string text = MarkdownOf(Example(true));
  EXPECT_NE(text.find("- machine: abacus\n"), std::string::npos) << text;
  EXPECT_NE(text.find("| lenet | 32 | 2 | adam | 2.000 (1.000 to 4.000) | 4.000 (4.000 to 6.000) | "
                      "3.00 (1.00 to 4.00) | 2.00 | 2.0 | unknown |\n"),
            std::string::npos)
      << text;
}

TEST(Report, AnAbsentPeerIsNamed) {
  const std::string text = MarkdownOf(Example(false));
  EXPECT_NE(
      text.find("| 2.000 (1.000 to 4.000) | peer: absent | absent | absent | 2.0 | absent |\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(nlohmann::json::parse(JsonOf(Example(false)))["benchmarks"].size(), 1u);
}

TEST(Report, JsonIsGoogleBenchmarks) {
  const nlohmann::json json = nlohmann::json::parse(JsonOf(Example(true)));
  EXPECT_EQ(json["context"]["machine"], "abacus");
  ASSERT_EQ(json["benchmarks"].size(), 2u);
  const nlohmann::json& ours = json["benchmarks"][0];
  EXPECT_EQ(ours["name"], "TrainingStep/lenet/adam/batch:32/threads:2/tidepool");
  EXPECT_EQ(ours["run_type"], "iteration");
  EXPECT_EQ(ours["iterations"], 21);
  EXPECT_EQ(ours["time_unit"], "ms");
  EXPECT_EQ(ours["real_time"], 2);
  EXPECT_EQ(ours["real_time_min"], 1);
  EXPECT_EQ(ours["real_time_max"], 4);
  EXPECT_EQ(ours["cpu_time"], 3);
  EXPECT_EQ(ours["peak_memory_bytes"], 2 << 20);
  const nlohmann::json& peer = json["benchmarks"][1];
  EXPECT_EQ(peer["name"], "TrainingStep/lenet/adam/batch:32/threads:2/peer");
  EXPECT_EQ(peer["real_time"], 4);
  EXPECT_FALSE(peer.contains("peak_memory_bytes"));
}

}  // namespace
}  // namespace tidepool::tools
