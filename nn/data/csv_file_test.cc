#include "tidepool/nn/data/csv_file.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

using ::absl::StatusCode;

std::string FileOf(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/table.csv";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

CsvSchema Houses() {
  CsvSchema schema;
  schema.columns = {{.name = "area"},
                    {.name = "rooms", .if_missing = -1},
                    {.name = "kind",
                     .kind = CsvKind::kCategory,
                     .categories = {"house", "flat"},
                     .if_missing = 0},
                    {.name = "sold", .kind = CsvKind::kInteger, .is_label = true}};
  return schema;
}

TEST(CsvFile, NumbersCategoriesAndMissingValuesByName) {
  const CsvTable table =
      ReadCsv(FileOf("kind,sold,agent, area ,rooms\r\n"
                     "flat,1,\"Smith, J.\",70.5,3\r\n"
                     "\r\n"
                     "house,-9007199254740993,\"said \"\"no\"\"\n twice\", 1e2 ,NA\n"
                     "NA,3,,+5,4"),
              Houses());
  EXPECT_EQ(table.features.ToVector<float>(),
            (std::vector<float>{70.5, 3, 0, 1, 100, -1, 1, 0, 5, 4, 0, 0}));
  EXPECT_EQ(table.features.shape(), Shape({3, 4}));
  EXPECT_EQ(table.labels.ToVector<int64_t>(), (std::vector<int64_t>{1, -9007199254740993, 3}));
  EXPECT_THAT(table.feature_names,
              ::testing::ElementsAre("area", "rooms", "kind=house", "kind=flat"));
}

TEST(CsvFile, CategoriesOfTheFileAreSortedAndReadOtherFiles) {
  CsvSchema schema;
  schema.has_header = false;
  schema.format.separator = ';';
  schema.columns = {{.name = "x"},
                    {.name = "colour", .kind = CsvKind::kCategory, .is_label = true}};
  const CsvTable table = ReadCsv(FileOf("\xEF\xBB\xBF"
                                        "1;red\n2;blue\n3;red\n4;green\n"),
                                 schema);
  EXPECT_THAT(table.schema.columns[1].categories, ::testing::ElementsAre("blue", "green", "red"));
  EXPECT_EQ(table.labels.ToVector<int64_t>(), (std::vector<int64_t>{2, 0, 2, 1}));
  EXPECT_EQ(ReadCsv(FileOf("7;green\n"), table.schema).labels.ToVector<int64_t>(),
            std::vector<int64_t>{1});
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf("7;green\n8;pink\n"), table.schema); }),
              IsError(StatusCode::kDataLoss,
                      {"table.csv: line 2, column 2: \"colour\"", "\"pink\"", "3 categories"}));
  // Several numbers are labels of a regression; gzip is looked through.
  schema.columns = {{.is_label = true}, {.name = "b", .is_label = true}};
  const CsvTable targets = ReadCsv(FileOf(Gzip("1;2\n3;4\n")), schema);
  EXPECT_FALSE(targets.features.is_defined());
  EXPECT_EQ(targets.labels.shape(), Shape({2, 2}));
  EXPECT_EQ(targets.labels.ToVector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(ReadCsv(FileOf(""), schema).labels.shape(), Shape({0, 2}));
}

TEST(CsvFile, LinesThatEndWithCrAloneAreToldApart) {
  const auto message_of = [](const std::string& text) {
    return ErrorOf([&] { ReadCsv(FileOf(text), Houses()); });
  };
  // As old Macintosh programs write them: the whole file is one line, whose first end is told.
  EXPECT_THAT(message_of("area,rooms,kind,sold\r1,2,flat,1\r"),
              IsError(StatusCode::kDataLoss,
                      {"line 1, column 4: found CR without LF behind it, expected lines that end "
                       "with LF or CR LF"}));
  CsvSchema schema;
  schema.columns = {{.name = "kind", .kind = CsvKind::kCategory}};
  // Quotes keep CR, line ends may have it twice, and the file may end behind it.
  EXPECT_THAT(ReadCsv(FileOf("kind\r\r\n\"a\rb\"\r\nc\r"), schema).schema.columns[0].categories,
              ::testing::ElementsAre("a\rb", "c"));
}

TEST(CsvFile, ALineOfTwoQuotesIsARecord) {
  CsvSchema schema;
  schema.columns = {{.name = "y", .if_missing = -1}};
  for (const char* const text :
       {"y\n1\n\"\"\n\n3\n", "y\r\n1\r\n\"\"\r\n\r\n3", "y\n1\n\"\"\r\r\n\r\r\n3\r"}) {
    EXPECT_EQ(ReadCsv(FileOf(text), schema).features.ToVector<float>(),
              (std::vector<float>{1, -1, 3}))
        << text;
  }
  EXPECT_EQ(ReadCsv(FileOf("y\n1\n\"\""), schema).features.ToVector<float>(),
            (std::vector<float>{1, -1}));
  schema.columns = {{.name = "y", .kind = CsvKind::kInteger, .is_label = true}};
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf("y\n1\n\"\"\n3\n"), schema); }),
              IsError(StatusCode::kDataLoss, {"line 3, column 1: \"y\"", "where it is missing"}));
}

TEST(CsvFile, BlanksAroundCategoriesAndNamesCountInQuotesAlone) {
  CsvSchema schema;
  schema.columns = {{.name = "k", .kind = CsvKind::kCategory, .if_missing = 0}, {.name = "v"}};
  const CsvTable table =
      ReadCsv(FileOf("k, v\nx,1\n x\t,\" 2 \"\n\" x\",3\n NA ,4\n\" NA\",5\n"), schema);
  EXPECT_THAT(table.schema.columns[0].categories, ::testing::ElementsAre(" NA", " x", "x"));
  EXPECT_EQ(table.features.ToVector<float>(), (std::vector<float>{0, 0, 1, 1,  //
                                                                  0, 0, 1, 2,  //
                                                                  0, 1, 0, 3,  //
                                                                  0, 0, 0, 4,  //
                                                                  1, 0, 0, 5}));
  schema.columns[0].categories = {"x", " x"};
  EXPECT_EQ(ReadCsv(FileOf("k,v\n x ,1\n\" x\",2\n"), schema).features.ToVector<float>(),
            (std::vector<float>{1, 0, 1, 0, 1, 2}));
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf("k,v\n\"x \",1\n"), schema); }),
              IsError(StatusCode::kDataLoss, {"line 2, column 1", "\"x \"", "2 categories"}));
  schema.columns = {{.name = "b"}, {.name = " b"}};
  EXPECT_EQ(ReadCsv(FileOf("\" b\", b \n1,2\n"), schema).features.ToVector<float>(),
            (std::vector<float>{2, 1}));
}

TEST(CsvFile, WhatIsWrongIsToldWithLineAndColumn) {
  struct Case {
    const char* text;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const std::string header = "area,rooms,kind,sold\n";
  for (const Case& wrong : std::vector<Case>{
           {"1,2,flat,1\nabc,2,flat,1\n",
            StatusCode::kDataLoss,
            {"line 3, column 1: \"area\"", "\"abc\"", "a number"}},
           {"1,2x,flat,1\n", StatusCode::kDataLoss, {"line 2, column 2: \"rooms\"", "\"2x\""}},
           {"1,2,flat,1.5\n",
            StatusCode::kDataLoss,
            {"line 2, column 4: \"sold\"", "integer of 64 bits"}},
           {"1,2,flat,9223372036854775808\n", StatusCode::kDataLoss, {"integer of 64 bits"}},
           {"1e39,2,flat,1\n", StatusCode::kDataLoss, {"column 1", "finite in f32"}},
           {"inf,2,flat,1\n", StatusCode::kDataLoss, {"column 1", "finite in f32"}},
           {"1,1e999,flat,1\n", StatusCode::kDataLoss, {"column 2", "a number"}},
           {",2,flat,1\n", StatusCode::kDataLoss, {"column 1", "where it is missing"}},
           {"1,2,flat,\n", StatusCode::kDataLoss, {"column 4", "where it is missing"}},
           {"1,2,Flat,1\n",
            StatusCode::kDataLoss,
            {"column 3: \"kind\"", "\"Flat\"", "2 categories"}},
           {"1,2,flat\n",
            StatusCode::kDataLoss,
            {"line 2, column 3", "found 3 fields, expected 4"}},
           {"1,2,flat,1,5\n",
            StatusCode::kDataLoss,
            {"line 2, column 5", "found 5 fields, expected 4"}},
           {"1,2,\"flat\n\nmore,1\n", StatusCode::kDataLoss, {"line 2, column 3", "not closed"}},
           {"1,2,\"a\nb\"c,1\n",
            StatusCode::kDataLoss,
            {"line 3, column 3", "behind a closing quote"}},
           {"1,2,fl\"at,1\n",
            StatusCode::kDataLoss,
            {"line 2, column 3", "a quote within a field"}},
           {"1,2,flat,1\r3,4,flat,1\r",
            StatusCode::kDataLoss,
            {"line 2, column 4: found CR without LF", "expected lines that end with LF or CR LF"}},
           {"1,2,\"flat\"\r,1\n", StatusCode::kDataLoss, {"line 2, column 3: found CR without LF"}},
           {"1,2,flat\x01,1\n", StatusCode::kDataLoss, {"\"flat\\x01\"", "categories"}}}) {
    EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf(header + wrong.text), Houses()); }),
                IsError(wrong.code, wrong.parts))
        << wrong.text;
  }
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf(header + std::string("1,2,fl\0at,1", 11)), Houses()); }),
              IsError(StatusCode::kDataLoss, {"line 2, column 3", "a zero byte"}));
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf("area,rooms,kind\n"), Houses()); }),
              IsError(StatusCode::kDataLoss, {"line 1: header", "no column \"sold\""}));
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf("area,rooms,kind,sold,area\n"), Houses()); }),
              IsError(StatusCode::kDataLoss, {"two columns \"area\""}));
  EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf(""), Houses()); }),
              IsError(StatusCode::kDataLoss, {"expected a header"}));
}

TEST(CsvFile, WholeNumbersInEveryForm) {
  CsvSchema schema;
  schema.has_header = false;
  schema.columns = {{.name = "x", .kind = CsvKind::kInteger},
                    {.name = "y", .kind = CsvKind::kInteger, .is_label = true}};
  const CsvTable table = ReadCsv(
      FileOf(
          "1.0,1e3\n+25e-0,10e-1\n.0,-9223372036854775808.000\n-2.50e1, 9.223372036854775807E18 \n"
          "0e99999999999999999999,0.0000001e+7\n1e15,+00000000000000000000000012.\n"),
      schema);
  EXPECT_EQ(table.features.ToVector<float>(), (std::vector<float>{1, 25, 0, -25, 0, 1e15f}));
  EXPECT_EQ(table.labels.ToVector<int64_t>(),
            (std::vector<int64_t>{1000, 1, INT64_MIN, INT64_MAX, 1, 12}));
  for (const char* const bad :
       {"1.5", "25e-1", "9223372036854775808.0", "1e19", "1e99999999999999999999", "1e", "e1", ".",
        "1.0.0", "1e1.0", "--1", "0x10", "inf", "1 0", "0.00000000000000000000000000000001"}) {
    EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf(std::string("1,") + bad + "\n"), schema); }),
                IsError(StatusCode::kDataLoss, {"\"y\": found ", "expected an integer of 64 bits"}))
        << bad;
  }
}

TEST(CsvFile, NumbersBeyondThoseOfDouble) {
  CsvSchema schema;
  schema.has_header = false;
  schema.columns = {{.name = "x"}};
  EXPECT_EQ(ReadCsv(FileOf("1e-400\n-1e-400\n"), schema).features.ToVector<float>(),
            (std::vector<float>{0, 0}));
  for (const char* const large : {"1e400", "-1e400", "1e39"}) {
    EXPECT_THAT(ErrorOf([&] { ReadCsv(FileOf(large), schema); }),
                IsError(StatusCode::kDataLoss, {large, "expected a number that is finite in f32"}));
  }
}

TEST(CsvFile, LimitsHold) {
  const auto error = [](const CsvSchema& schema, const std::string& text) {
    return ErrorOf([&] { ReadCsv(FileOf(text), schema); });
  };
  CsvSchema schema;
  schema.has_header = false;
  schema.columns = {{.kind = CsvKind::kCategory}};
  schema.max_categories = 3;
  EXPECT_THAT(error(schema, "a\nb\nc\nd\n"),
              IsError(StatusCode::kResourceExhausted, {"line 4, column 1", "3 categories"}));
  schema.max_values = 8;
  EXPECT_THAT(error(schema, "a\nb\nc\n"),
              IsError(StatusCode::kResourceExhausted, {"3 rows of 3 features", "8 values"}));
  schema.format.max_record_bytes = 10;
  EXPECT_THAT(error(schema, "a\n\"" + std::string(20, '\n') + "\"\n"),
              IsError(StatusCode::kResourceExhausted, {"line 2", "10 bytes"}));
  schema.format.max_fields = 3;
  EXPECT_THAT(error(schema, "a,b,c,d\n"),
              IsError(StatusCode::kResourceExhausted, {"line 1", "3 fields"}));
  schema.format.max_bytes = 100;
  EXPECT_THAT(error(schema, std::string(200, '\n')),
              IsError(StatusCode::kResourceExhausted, {"100"}));
}

TEST(CsvFile, SchemasThatCannotBe) {
  const auto message = [](std::vector<CsvColumn> columns, char separator = ',') {
    CsvSchema schema;
    schema.columns = std::move(columns);
    schema.format.separator = separator;
    const Error error = ErrorOf([&] { ReadCsv(FileOf("a,b\n1,2\n"), schema); });
    EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
    return error.message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message({}), HasSubstr("no columns"));
  EXPECT_THAT(message({{.name = "a"}, {.name = "a"}}), HasSubstr("doubled name"));
  EXPECT_THAT(message({{.name = ""}}), HasSubstr("empty"));
  EXPECT_THAT(message({{.name = "a", .categories = {"x"}}}), HasSubstr("none for numbers"));
  EXPECT_THAT(message({{.name = "a", .kind = CsvKind::kCategory, .categories = {"x", "x"}}}),
              HasSubstr("twice"));
  for (const double number : {std::nan(""), 1e39, -HUGE_VAL}) {
    EXPECT_THAT(message({{.name = "a", .if_missing = number}}),
                HasSubstr("column \"a\": found if_missing"));
  }
  EXPECT_THAT(
      message({{.name = "a", .kind = CsvKind::kInteger, .if_missing = 0.5}}),
      HasSubstr("found if_missing 0.5, expected a number that is finite in f32 and has no"));
  EXPECT_THAT(message({{.name = "a", .if_missing = 1, .is_label = true}}),
              HasSubstr("labels that are there"));
  EXPECT_THAT(message({{.name = "a", .is_label = true},
                       {.name = "b", .kind = CsvKind::kInteger, .is_label = true}}),
              HasSubstr("found 2 labels, 1 of them numbers"));
  EXPECT_THAT(message({{.name = "a"}}, '"'), HasSubstr("separator"));
}

}  // namespace
}  // namespace tidepool
