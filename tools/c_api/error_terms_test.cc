#include "tidepool/tools/c_api/error_terms.h"

#include "gtest/gtest.h"

namespace tidepool::c_api {
namespace {

TEST(ErrorTerms, TheFunctionIsTheCallersOwn) {
  EXPECT_EQ(InTermsOfC("tidepool_manager_lend", "Lend: owner [a/b] is closed"),
            "tidepool_manager_lend: owner [a/b] is closed");
  EXPECT_EQ(InTermsOfC("tidepool_manager_new", "NewSubManager [a]: the parent is closed"),
            "tidepool_manager_new: [a]: the parent is closed");
  EXPECT_EQ(InTermsOfC("tidepool_manager_attach", "Op [attach] X argument was closed"),
            "tidepool_manager_attach: the array was closed");
  EXPECT_EQ(InTermsOfC("tidepool_array_read",
                       "Op [tidepool_array_read] array argument uses workspace [w]"),
            "tidepool_array_read: the array uses workspace [w]");
  EXPECT_EQ(InTermsOfC("tidepool_call", "Op [relu] X argument was closed"),
            "tidepool_call: Op [relu] X argument was closed");
  EXPECT_EQ(InTermsOfC("tidepool_call", "tidepool_call: name is NULL"),
            "tidepool_call: name is NULL");
  EXPECT_EQ(InTermsOfC("tidepool_call", "Op [relu"), "tidepool_call: Op [relu");
  EXPECT_EQ(InTermsOfC("tidepool_call", ""), "tidepool_call: ");
}

TEST(ErrorTerms, NamesOfCppAreThoseOfC) {
  EXPECT_EQ(InTermsOfC("tidepool_array_data", "a view with gaps; Dup() makes it dense"),
            "tidepool_array_data: a view with gaps; tidepool_array_copy makes it dense");
  EXPECT_EQ(InTermsOfC("f", "is full; DLPackDeviceRegistrar adds one"), "f: is full");
  EXPECT_EQ(InTermsOfC("f", "found -1 bytes, expected at least 0 or kUnlimited"),
            "f: found -1 bytes, expected at least 0 or INT64_MAX");
}

TEST(ErrorTerms, NamesThatCallersGaveStay) {
  EXPECT_EQ(InTermsOfC("f", "workspace [Dup() [x] Dup()] is open; Dup()"),
            "f: workspace [Dup() [x] Dup()] is open; tidepool_array_copy");
  EXPECT_EQ(InTermsOfC("f", "found \"Dup() \\\" Dup()\" and Dup()"),
            "f: found \"Dup() \\\" Dup()\" and tidepool_array_copy");
  EXPECT_EQ(InTermsOfC("f", "MyDup() and MatMulIntoIt"), "f: MyDup() and MatMulIntoIt");
  EXPECT_EQ(InTermsOfC("f", "an open [ Dup()"), "f: an open [ Dup()");
  EXPECT_EQ(InTermsOfC("f", "an open \" Dup()\\"), "f: an open \" Dup()\\");
}

}  // namespace
}  // namespace tidepool::c_api
