#include "tidepool/memory/profile/profile_page.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/testing/sample_recordings.h"

namespace tidepool {
namespace {

using testing::HasSubstr;
using testing::Not;

// The text of the element of that id.
std::string Element(const std::string& page, const std::string& id) {
  const size_t tag = page.find("id=\"" + id + "\">");
  const size_t begin = page.find('>', tag) + 1;
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(ProfilePage, HasAllItNeedsAndLoadsNothing) {
  const std::string page = ProfilePage(TrainingRecording(20));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* const part : {"title", "style", "dygraphs", "script", "header", "columns"}) {
    EXPECT_THAT(page, Not(HasSubstr("{{" + std::string(part) + "}}")));
  }
  EXPECT_THAT(page, Not(HasSubstr("sourceMappingURL")));
  for (const char* const loads :
       {"src=", "<link", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "eval("}) {
    EXPECT_THAT(page.substr(0, page.find("<script nonce")), Not(HasSubstr(loads)));
    EXPECT_EQ(page.find(loads, page.find("'use strict';")), std::string::npos) << loads;
  }
  EXPECT_THAT(page, HasSubstr("THE SOFTWARE IS PROVIDED \"AS IS\"")) << "the licence of dygraphs";
}

TEST(ProfilePage, NamesCannotEndTheirElement) {
  ProfileData data = TrainingRecording(3);
  data.title = "</title><script>alert(1)</script>";
  const std::string page = ProfilePage(data);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  const nlohmann::json header = nlohmann::json::parse(Element(page, "header-data"));
  EXPECT_EQ(header["title"], data.title);
  bool found = false;
  for (const std::string text : header["strings"])
    found = found || text == "network #debug </script><b>";
  EXPECT_TRUE(found);
}

TEST(ProfilePage, ColumnsAreRowByRow) {
  ProfileData data;
  data.kinds = MemoryKindNames();
  data.devices = {"host"};
  data.tiers = {"host memory"};
  data.places = {{0, 0, 0}};
  data.steps = {{5, 300, 0, 0, 0, true}, {200, -1, 0, 0, 2, false}};
  ProfileArray array;
  array.born = 7;
  array.bytes = array.taken = 128;
  array.died = 9;
  data.arrays = {array};
  const internal::EncodedProfile encoded = internal::EncodeProfile(data);
  // time, zigzag of bytes, device, owner, kind and start.
  const std::string steps(
      "\x05\xd8\x04\x00\x00\x01"
      "\xc3\x01\x01\x00\x00\x04",
      12);
  const std::string arrays("\x0e\x03\x80\x01\x00\x00\x00\x00\x00\x00\x00", 11);
  EXPECT_EQ(absl::BytesToHexString(encoded.columns), absl::BytesToHexString(steps + arrays));
  std::string columns;
  data.title = "x";
  const std::string page = ProfilePage(data);
  ASSERT_TRUE(absl::Base64Unescape(Element(page, "columns-data"), &columns));
  EXPECT_EQ(columns, encoded.columns);
}

}  // namespace
}  // namespace tidepool
