#include "tidepool/ndarray/io/safetensors_file.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/ndarray/io/safetensors_info.h"

namespace tidepool {
namespace {

using absl::StatusCode;

// Made by Python's safetensors 0.8.0 and numpy 2.4:
//
//   import numpy as np; from safetensors.numpy import save
//   save({"w": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
//         "bias": np.array([-1, 2], dtype=np.int64), "flag": np.array(True),
//         "empty": np.zeros((0, 5), np.float32), "h": np.array([1.5], np.float16)},
//        metadata={"made": "by numpy \"x\" \u00e9\n"})
std::string Golden() {
  const std::string json =
      "{\"__metadata__\":{\"made\":\"by numpy \\\"x\\\" \xc3\xa9\\n\"},"
      "\"bias\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
      "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[16,16]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
      "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[40,42]},"
      "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[42,43]}} ";
  const unsigned char length[] = {0x50, 0x01, 0, 0, 0, 0, 0, 0};
  const unsigned char data[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x00, 0x00,
                                0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                0x80, 0x3e, 0x00, 0x00, 0x00, 0x3f, 0x00, 0x00, 0x40, 0x3f, 0x00,
                                0x00, 0x80, 0x3f, 0x00, 0x00, 0xa0, 0x3f, 0x00, 0x3e, 0x01};
  return std::string(std::begin(length), std::end(length)) + json +
         std::string(std::begin(data), std::end(data));
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

template <typename T>
absl::Span<const std::byte> Bytes(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Values(absl::Span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void ExpectGolden(const SafetensorsReader& reader) {
  EXPECT_THAT(reader.metadata(),
              testing::ElementsAre(testing::Pair("made", "by numpy \"x\" \xc3\xa9\n")));
  EXPECT_EQ(reader.tensors().size(), 5u);
  EXPECT_THAT(reader.Find("w").shape, testing::ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(reader.data(reader.Find("w"))),
              testing::ElementsAre(0, .25f, .5f, .75f, 1, 1.25f));
  EXPECT_THAT(Values<int64_t>(reader.data(reader.Find("bias"))), testing::ElementsAre(-1, 2));
  EXPECT_THAT(Values<uint16_t>(reader.data(reader.Find("h"))), testing::ElementsAre(0x3e00));
  EXPECT_THAT(Values<uint8_t>(reader.data(reader.Find("flag"))), testing::ElementsAre(1));
  EXPECT_THAT(reader.Find("flag").shape, testing::IsEmpty());
  EXPECT_THAT(reader.Find("empty").shape, testing::ElementsAre(0, 5));
  EXPECT_EQ(reader.data(reader.Find("empty")).size(), 0u);
}

TEST(SafetensorsReader, ReadsPythonsFile) {
  ExpectGolden(SafetensorsReader::Open(WriteTestFile("golden.safetensors", Golden())));
  ExpectGolden(SafetensorsReader::Parse(Bytes(Golden()), "golden"));
}

TEST(WriteSafetensors, WritesPythonsFileByteForByte) {
  const std::vector<float> w = {0, .25f, .5f, .75f, 1, 1.25f};
  const std::vector<int64_t> bias = {-1, 2};
  const std::vector<uint16_t> h = {0x3e00};
  const std::vector<uint8_t> flag = {1};
  const std::vector<SafetensorView> tensors = {{"w", "F32", {2, 3}, Bytes(w)},
                                               {"bias", "I64", {2}, Bytes(bias)},
                                               {"flag", "BOOL", {}, Bytes(flag)},
                                               {"empty", "F32", {0, 5}, {}},
                                               {"h", "F16", {1}, Bytes(h)}};
  const std::string path = testing::TempDir() + "/ours.safetensors";
  WriteSafetensors(path, {{"made", "by numpy \"x\" \xc3\xa9\n"}}, tensors);
  EXPECT_EQ(Content(path), Golden());
}

TEST(SafetensorsReader, DataIsAligned) {
  const SafetensorsReader reader = SafetensorsReader::Parse(Bytes(Golden()), "golden");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(reader.data(reader.Find("bias")).data()) % 64, 0u);
  for (const SafetensorInfo& info : reader.tensors()) {
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(reader.data(info).data()) * 8 % SafetensorDtypeBits(info.dtype),
        0u);
  }
}

TEST(SafetensorsReader, MovingKeepsSpansValid) {
  SafetensorsReader reader = SafetensorsReader::Parse(Bytes(Golden()), "golden");
  const auto before = reader.data(reader.Find("w"));
  const SafetensorsReader moved = std::move(reader);
  EXPECT_EQ(moved.data(moved.Find("w")).data(), before.data());
}

TEST(SafetensorsReader, FindNamesWhatThereIs) {
  const SafetensorsReader reader = SafetensorsReader::Parse(Bytes(Golden()), "golden");
  EXPECT_TRUE(reader.Contains("h"));
  EXPECT_FALSE(reader.Contains("H"));
  EXPECT_EQ(reader.FindOrNull(""), nullptr);
  EXPECT_THAT(ErrorOf([&] { reader.Find("weight\n"); }),
              IsError(StatusCode::kNotFound,
                      {"golden", "\"weight\\n\"", "expected one of 5: bias empty flag h w"}));
}

TEST(SafetensorsReader, ForeignInfoIsRefused) {
  const SafetensorsReader reader = SafetensorsReader::Parse(Bytes(Golden()), "golden");
  SafetensorInfo info = reader.Find("flag");
  info.end = 44;
  EXPECT_THAT(ErrorOf([&] { reader.data(info); }),
              IsError(StatusCode::kInvalidArgument,
                      {"golden", "\"flag\"", "found [42,44]", "expected [42,43], as in the file"}));
}

// Also where the bytes are within the file's: they would be another tensor's, or read as what they are not.
TEST(SafetensorsReader, AlteredInfosAreRefused) {
  const std::string path = WriteTestFile("altered.safetensors", Golden());
  const SafetensorsReader opened = SafetensorsReader::Open(path);
  const SafetensorsReader parsed = SafetensorsReader::Parse(Bytes(Golden()), path);
  for (const SafetensorsReader* reader : {&opened, &parsed}) {
    const auto expect_refused = [&](const std::function<void(SafetensorInfo&)>& alter,
                                    StatusCode code, const std::vector<std::string>& words) {
      SafetensorInfo info = reader->Find("w");
      alter(info);
      std::byte to[1];
      EXPECT_THAT(ErrorOf([&] { reader->Read(info, 0, absl::MakeSpan(to)); }),
                  IsError(code, words));
      EXPECT_THAT(ErrorOf([&] { reader->data(info); }), IsError(code, words));
    };
    using Info = SafetensorInfo&;
    const StatusCode invalid = StatusCode::kInvalidArgument;
    expect_refused([](Info w) { w.begin = 0; }, invalid,
                   {path, "\"w\"", "data_offsets: found [0,40], expected [16,40]"});
    expect_refused([](Info w) { w.begin = w.end; }, invalid, {"found [40,40], expected [16,40]"});
    expect_refused([](Info w) { w.begin = 41; }, invalid, {"found [41,40]"});
    expect_refused([](Info w) { w.end = UINT64_MAX; }, invalid,
                   {"found [16,18446744073709551615]"});
    expect_refused([](Info w) { w.end = 20; }, invalid, {"found [16,20]"});
    expect_refused([](Info w) { w.dtype = "I32"; }, invalid,
                   {"\"w\"", "dtype: found I32, expected F32, as in the file"});
    expect_refused([](Info w) { w.dtype = "\n"; }, invalid, {"dtype: found \\n, expected F32"});
    expect_refused(
        [](Info w) {
          w.shape = {3, 2};
        },
        invalid, {"shape: found [3,2], expected [2,3]"});
    expect_refused([](Info w) { w.shape = {}; }, invalid, {"shape: found []"});
    expect_refused([](Info w) { w.name = "h"; }, invalid,
                   {"\"h\"", "data_offsets: found [16,40], expected [40,42]"});
    expect_refused([](Info w) { w.name = "v"; }, StatusCode::kNotFound,
                   {path, "\"v\": found no such tensor"});
    const SafetensorInfo copy = reader->Find("w");
    EXPECT_EQ(reader->data(copy).size(), 24u);
  }
}

TEST(SafetensorsReader, BrokenFiles) {
  const auto broken = [](const std::string& bytes, const char* name) {
    const std::string path = WriteTestFile(name, bytes);
    const Error opened = ErrorOf([&] { SafetensorsReader::Open(path); });
    EXPECT_EQ(opened.message(),
              ErrorOf([&] { SafetensorsReader::Parse(Bytes(bytes), path); }).message());
    EXPECT_NE(opened.message().find(path), std::string::npos);
    return opened;
  };
  const std::string golden = Golden();
  EXPECT_THAT(broken("", "empty"),
              IsError(StatusCode::kDataLoss, {"byte 0", "file of 0 bytes", "at least 8"}));
  EXPECT_THAT(broken("1234567", "seven"),
              IsError(StatusCode::kDataLoss, {"byte 0", "file of 7 bytes"}));
  EXPECT_THAT(
      broken(golden.substr(0, 100), "header"),
      IsError(StatusCode::kDataLoss, {"byte 0", "header length", "found 336", "at most 92"}));
  EXPECT_THAT(
      broken(golden.substr(0, golden.size() - 1), "data"),
      IsError(StatusCode::kDataLoss, {"byte 344", "data", "found 42 bytes", "expected 43"}));
  EXPECT_THAT(broken(golden + "x", "more"),
              IsError(StatusCode::kDataLoss, {"byte 344", "found 44 bytes", "expected 43"}));
  EXPECT_THAT(broken("PK\x03\x04 not a tensor file", "zip"),
              IsError(StatusCode::kDataLoss,
                      {"header length", "at most 100000000", "is this a safetensors file?"}));
}

TEST(SafetensorsReader, ReadsPartsOfTensorsToWhereTheyAreWanted) {
  const std::string path = WriteTestFile("parts.safetensors", Golden());
  const SafetensorsReader opened = SafetensorsReader::Open(path);
  const SafetensorsReader parsed = SafetensorsReader::Parse(Bytes(Golden()), path);
  for (const SafetensorsReader* reader : {&opened, &parsed}) {
    for (const SafetensorInfo& info : parsed.tensors()) {
      const absl::Span<const std::byte> whole = parsed.data(info);
      for (uint64_t begin = 0; begin <= info.bytes(); ++begin) {
        std::vector<std::byte> part(info.bytes() - begin);
        reader->Read(info, begin, absl::MakeSpan(part));
        EXPECT_EQ(part, std::vector<std::byte>(whole.begin() + static_cast<ptrdiff_t>(begin),
                                               whole.end()));
        part.push_back({});
        EXPECT_THAT(
            ErrorOf([&] { reader->Read(info, begin, absl::MakeSpan(part)); }),
            IsError(StatusCode::kInvalidArgument, {path, info.name, "bytes to read from byte"}));
      }
      std::byte none[1];
      EXPECT_THAT(ErrorOf([&] { reader->Read(info, UINT64_MAX, absl::MakeSpan(none)); }),
                  IsError(StatusCode::kInvalidArgument, {"from byte 18446744073709551615"}));
    }
  }
}

TEST(SafetensorsReader, AFileThatBecomesShorterIsAnError) {
  const std::string path = WriteTestFile("shorter.safetensors", Golden());
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  std::filesystem::resize_file(path, Golden().size() - 1);
  EXPECT_THAT(
      ErrorOf([&] { reader.data(reader.tensors().front()); }),
      IsError(StatusCode::kDataLoss, {path, "byte 344: data: found 42 bytes", "expected 43"}));
  WriteTestFile("shorter.safetensors", Golden());
  EXPECT_EQ(reader.data(reader.tensors().front()).size(),
            reader.tensors().front().bytes());  // asked again
}

TEST(SafetensorsReader, NotAFile) {
  EXPECT_THAT(ErrorOf([] { SafetensorsReader::Open(testing::TempDir() + "/none"); }),
              IsError(StatusCode::kNotFound, {"/none", "No such file"}));
  EXPECT_THAT(ErrorOf([] { SafetensorsReader::Open(testing::TempDir()); }),
              IsError(StatusCode::kFailedPrecondition, {"Is a directory"}));
  EXPECT_THAT(ErrorOf([] { SafetensorsReader::Open("/dev/zero"); }),
              IsError(StatusCode::kInvalidArgument,
                      {"/dev/zero", "found a pipe or device", "expected a regular file"}));
}

TEST(SafetensorsWriter, PieceByPiece) {
  const std::string path = testing::TempDir() + "/pieces.safetensors";
  SafetensorsWriter writer(path, {}, {{"small", "U8", {3}}, {"wide", "U64", {1}}});
  ASSERT_EQ(writer.tensors().at(0).name, "wide");
  writer.Append(Bytes(std::string("12345")));
  EXPECT_THAT(ErrorOf([&] { writer.Commit(); }),
              IsError(StatusCode::kFailedPrecondition, {path, "found 5 bytes", "expected 11"}));
  EXPECT_THAT(
      ErrorOf([&] { writer.Append(Bytes(std::string("1234567"))); }),
      IsError(StatusCode::kInvalidArgument, {path, "byte 5", "found 7 bytes", "at most 6"}));
  writer.Append(Bytes(std::string("678abc")));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.Commit();
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  EXPECT_EQ(Values<char>(reader.data(reader.Find("small"))), (std::vector<char>{'a', 'b', 'c'}));
}

TEST(WriteSafetensors, RefusalsTouchNoFile) {
  const std::string path = WriteTestFile("kept.safetensors", "old");
  const std::vector<float> two = {1, 2};
  EXPECT_THAT(ErrorOf([&] {
                WriteSafetensors(path, {}, {{"a", "F32", {3}, Bytes(two)}});
              }),
              IsError(StatusCode::kInvalidArgument,
                      {path, "tensor \"a\"", "found 8 bytes", "expected 12"}));
  EXPECT_THAT(
      ErrorOf([&] {
        WriteSafetensors(path, {}, {{"a", "F32", {2}, Bytes(two)}, {"a", "F32", {2}, Bytes(two)}});
      }),
      IsError(StatusCode::kInvalidArgument, {path, "\"a\"", "found twice"}));
  EXPECT_THAT(ErrorOf([&] {
                WriteSafetensors(path, {{"k", "\xff"}}, {});
              }),
              IsError(StatusCode::kInvalidArgument, {path, "metadata value", "expected UTF-8"}));
  EXPECT_EQ(Content(path), "old");
  EXPECT_THAT(ErrorOf([] { WriteSafetensors("/none/x", {}, {}); }),
              IsError(StatusCode::kNotFound, {"/none/x", "No such file"}));
}

TEST(WriteSafetensors, WhenMemoryRunsOutTheOldFileIsThereOrTheWholeNewOne) {
  const std::string folder = testing::TempDir() + "/no memory";
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/model, by a name that is longer than a string has room for";
  const std::vector<float> two = {1, 2};
  const auto write = [&] {
    WriteSafetensors(path,
                     {{"key, longer than a string has room for", "value, longer than that too"}},
                     {{"tensor, longer than a string has room for", "F32", {2}, Bytes(two)}});
  };
  write();
  const std::string whole = Content(path);
  int faults = 0;
  for (bool done = false; !done; ++faults) {
    std::ofstream(path) << "old";
    until_fault = faults;
    done = Try(write);
    const std::string found = Content(path);
    EXPECT_TRUE(found == whole || (!done && found == "old")) << faults << ": " << found;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << faults;
  }
  EXPECT_GT(faults, 10);
}

TEST(WriteSafetensors, NoTensors) {
  const std::string path = testing::TempDir() + "/empty.safetensors";
  WriteSafetensors(path, {}, {});
  EXPECT_EQ(Content(path),
            std::string("\x08\0\0\0\0\0\0\0{}      ", 16));  // as the reference writes it
  EXPECT_TRUE(SafetensorsReader::Open(path).tensors().empty());
}

}  // namespace
}  // namespace tidepool
