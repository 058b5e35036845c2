// The parser, and what its cycles take from the system.
#include "tidepool/examples/containers/json.h"

#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/examples/containers/documents.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

std::string ErrorOf(const char* text) {
  try {
    json::Parse(text, std::pmr::new_delete_resource());
  } catch (const json::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonTest, ReadsAllKindsOfValues) {
  const json::Value value = json::Parse(
      " {\"a\" : [1, -2.5e3, true,false , null], \"b\": {\"c\": \"x\\n\\u00e9\\\"\"}, \"d\": [], "
      "\"e\": {}} ",
      std::pmr::new_delete_resource());
  EXPECT_EQ(value["a"].array()[1].number(), -2500);
  EXPECT_TRUE(std::get<bool>(value["a"].array()[2].value));
  EXPECT_EQ(value["b"]["c"].string(), "x\n\xC3\xA9\"");
  EXPECT_TRUE(value["d"].array().empty());
  EXPECT_THROW(value["f"], std::out_of_range);
}

TEST(JsonTest, ErrorsSayWhatWasExpectedWhereAndFound) {
  EXPECT_EQ(ErrorOf("[1, 2"), "JSON: expected ']' at byte 5, found the end");
  EXPECT_EQ(ErrorOf("{\"a\" 1}"), "JSON: expected ':' at byte 5, found '1'");
  EXPECT_EQ(ErrorOf("[1] x"), "JSON: expected the end at byte 4, found 'x'");
  EXPECT_EQ(ErrorOf("\"abc"), "JSON: expected '\"' at byte 4, found the end");
  EXPECT_EQ(ErrorOf("\"\\u12\""), "JSON: expected an escape at byte 2, found 'u'");
  EXPECT_EQ(ErrorOf("-"), "JSON: expected a number at byte 0, found '-'");
  for (const char* none : {"-inf", "-nan", "01", "-00", "1.", "-.5", "1.e3"})
    EXPECT_EQ(ErrorOf(none).substr(0, 23), "JSON: expected a number") << none;
  EXPECT_NE(ErrorOf(std::string(300, '[').c_str()), "");
}

TEST(JsonTest, CyclesTakeNothingFromTheSystemWhetherDocumentsAreEqualOrNot) {
  Workspace workspace("requests", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < 100; ++i) texts.push_back(MakeOrders(1 + i * 7 % 90, i));
  auto request = [&](const std::string& text) {
    WorkspaceScope scope(workspace);
    const json::Value document = json::Parse(text, &resource);
    ASSERT_EQ(document["shop"].string(), "north");
  };
  const std::string largest = MakeOrders(300, 7);
  for (int i = 0; i < 3; ++i) request(largest);
  const int64_t system = MemoryTracker::Global().system_allocations(), news = AllocationCount();
  for (int i = 0; i < 50; ++i) request(largest);
  for (const std::string& text : texts) request(text);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), system);
  EXPECT_EQ(AllocationCount(), news);  // nor from operator new
  EXPECT_EQ(workspace.stats().findings, 0u);
}

TEST(JsonTest, ADocumentThatOutlivesItsCycleIsToldAndCanStillBeRead) {
  std::vector<std::string> told;
  SetCycleFindingSink([&](const CycleFinding& finding) { told.push_back(finding.text); });
  Workspace workspace("requests", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::optional<json::Value> kept;
  for (uint32_t i = 0; i < 5; ++i) {
    WorkspaceScope scope(workspace);
    const json::Value document = json::Parse(MakeOrders(50, i), &resource);
    if (i == 1)
      kept.emplace(json::Parse("{\"name\": \"a name that is too long for a string's own bytes\"}",
                               &resource));
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("workspace [requests], generation 2: 2 blocks of "), std::string::npos)
      << told[0];
  EXPECT_EQ((*kept)["name"].string(), "a name that is too long for a string's own bytes");
  kept.reset();
  SetCycleFindingSink({});
}

}  // namespace
}  // namespace tidepool
