#include "tidepool/ndarray/io/npy_file.h"

#include <zip.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_format.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }
std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

// As numpy 1.24 writes it: np.save("x.npy", np.array(..., "<f4")).
std::string NumpyFile(const std::string& dict, const std::string& data) {
  std::string text = dict;
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size()) + '\0' + text + data;
}

TEST(Npy, WritesWhatNumpyWrites) {
  const std::vector<float> values = {1.0f, -2.5f};
  WriteNpy(Path("x.npy"), FromValues(absl::MakeConstSpan(values), {2}));
  EXPECT_EQ(Read(Path("x.npy")),
            NumpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                      std::string("\0\0\x80\x3f\0\0\x20\xc0", 8)));
  WriteNpy(Path("s.npy"), Full({}, 1, DType::kBool));
  EXPECT_EQ(Read(Path("s.npy")),
            NumpyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "\x01"));
}

TEST(Npy, ReadsOrdersVersionsAndEmptyArrays) {
  const std::string ints("\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0\x06\0\0\0", 24);
  const NDArray c =
      ParseNpy(NumpyFile("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", ints), "c");
  EXPECT_THAT(c.ToVector<int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  const NDArray f =
      ParseNpy(NumpyFile("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", ints), "f");
  EXPECT_EQ(f.shape(), (Shape{2, 3}));
  EXPECT_THAT(f.ToVector<int32_t>(), ElementsAre(1, 3, 5, 2, 4, 6));
  const NDArray big =
      ParseNpy(NumpyFile("{\"shape\": (1,), \"descr\":\">i4\",\"fortran_order\":False}",
                         std::string("\0\0\x01\x02", 4)),
               "big");
  EXPECT_THAT(big.ToVector<int32_t>(), ElementsAre(258));
  EXPECT_EQ(ParseNpy(NumpyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }", ""),
                     "empty")
                .shape(),
            (Shape{0, 3}));
  // A bool that is neither 0 nor 1 is 1.
  const NDArray flags =
      ParseNpy(NumpyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }",
                         std::string("\0\x01\x07", 3)),
               "flags");
  EXPECT_EQ(std::to_integer<int>(flags.raw_data()[2]), 1);
  std::string version2 =
      NumpyFile("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }", "\x09");
  version2[6] = 2;
  version2.insert(10, std::string("\0\0", 2));
  EXPECT_THAT(ParseNpy(version2, "v2").ToVector<uint8_t>(), ElementsAre(9));
}

// Every type, with views that have gaps, there and back.
TEST(Npy, RoundTrips) {
  std::mt19937_64 random(7);
  std::map<std::string, NDArray> all;
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype == DType::kBFloat16) continue;
    NDArray x = Arange(0, 60, 1, DType::kFloat64).Reshape({3, 4, 5});
    NDArray typed(x.shape(), dtype);
    for (int64_t n = 0; n < 60; ++n) {
      const uint64_t bits = random();
      const size_t width = DTypeBytes(dtype);
      const uint64_t value = dtype == DType::kBool ? bits % 2 : bits;
      std::memcpy(typed.raw_data() + n * width, &value, width);
    }
    const NDArray view = typed.Slice(2, 4, -1, -2).Transpose();
    const std::string path = Path(std::string(DTypeName(dtype)) + ".npy");
    for (const NDArray& array :
         {typed, view, typed.Slice(1, 2, 2), typed.Reshape({60}).Slice(0, 3, 4)}) {
      WriteNpy(path, array);
      const NDArray back = ReadNpy(path);
      ASSERT_EQ(back.shape(), array.shape());
      ASSERT_EQ(back.dtype(), dtype);
      const NDArray dense = array.Dup();
      const size_t bytes = static_cast<size_t>(array.NumElements()) * DTypeBytes(dtype);
      EXPECT_EQ(bytes == 0 ? 0 : std::memcmp(back.raw_data(), dense.raw_data(), bytes), 0);
    }
    all[DTypeName(dtype)] = view;
  }
  for (const NpzCompression compression : {NpzCompression::kNone, NpzCompression::kDeflate}) {
    WriteNpz(Path("all.npz"), all, compression);
    const std::string bytes = Read(Path("all.npz"));
    WriteNpz(Path("all.npz"), all, compression);
    EXPECT_EQ(Read(Path("all.npz")), bytes);  // the same arrays, the same file
    const std::map<std::string, NDArray> back = ReadNpz(Path("all.npz"));
    ASSERT_EQ(back.size(), all.size());
    for (const auto& [name, array] : all) {
      const NDArray dense = array.Dup();
      const NDArray& read = back.at(name);
      ASSERT_EQ(read.shape(), array.shape());
      EXPECT_EQ(std::memcmp(read.raw_data(), dense.raw_data(),
                            dense.NumElements() * DTypeBytes(dense.dtype())),
                0)
          << name;
    }
  }
}

TEST(Npy, ErrorsNameFileByteFoundAndExpected) {
  auto parse = [](const std::string& bytes) {
    const Error error = ErrorOf([&] { ParseNpy(bytes, "w.npy"); });
    return std::string(absl::StatusCodeToString(error.code())) + ": " +
           std::string(error.message());
  };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_EQ(parse("PK\x03\x04"),
            "DATA_LOSS: w.npy: byte 0: found \"PK\\x03\\x04\", expected \"\\x93NUMPY\"");
  EXPECT_EQ(parse(std::string("\x93NUMPY\x01", 7)),
            "DATA_LOSS: w.npy: found a file of 7 bytes, expected a header");
  EXPECT_THAT(parse(NumpyFile(good, "").substr(0, 20)),
              HasSubstr("w.npy: found a file of 20 bytes, expected a header up to byte 128"));
  EXPECT_EQ(parse(NumpyFile(good, "1234567")),
            "DATA_LOSS: w.npy: found 7 bytes of data, expected 8 for [2] f32");
  EXPECT_EQ(
      parse(NumpyFile("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "")),
      "UNIMPLEMENTED: w.npy: descr: found \"<c8\", expected one of f4, f8, f2, i1, i4, i8, u1, "
      "b1, i2, u2, u4, u8 with a byte order");
  EXPECT_EQ(
      parse(NumpyFile("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "")),
      "UNIMPLEMENTED: w.npy: descr: found \"|O\", expected one of f4, f8, f2, i1, i4, i8, u1, "
      "b1, i2, u2, u4, u8 with a byte order");
  EXPECT_THAT(parse(NumpyFile("{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, "
                              "'shape': (2,), }",
                              "")),
              AllOf(HasSubstr("UNIMPLEMENTED: w.npy: descr: found \"[(\\'a\\', \\'<f4\\'), "),
                    HasSubstr("expected one of f4, f8, ")));
  EXPECT_EQ(parse(NumpyFile("{'descr': '<f4', 'fortran_order': False}", "")),
            "DATA_LOSS: w.npy: header: found no shape");
  EXPECT_THAT(parse(NumpyFile("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "")),
              AllOf(HasSubstr("DATA_LOSS: w.npy: header: character 34: found \"0, "),
                    HasSubstr(", expected True or False")));
  EXPECT_THAT(parse(NumpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "")),
              HasSubstr("expected a comma: a tuple of one"));
  EXPECT_THAT(parse(NumpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': "
                              "(9223372036854775807, 2)}",
                              "")),
              HasSubstr("w.npy: "));
  std::string version = NumpyFile(good, "12345678");
  version[6] = 9;
  EXPECT_EQ(parse(version),
            "DATA_LOSS: w.npy: byte 6: found version 9.0, expected 1.0, 2.0 or 3.0");
  EXPECT_THAT(ErrorOf([] { WriteNpy(Path("b.npy"), Ones({2}, DType::kBFloat16)); }).message(),
              HasSubstr("npy: found bf16"));
  EXPECT_EQ(ErrorOf([] { ReadNpy(Path("none.npy")); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] { ReadNpz(Path("none.npz")); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] { WriteNpy(Path("none/x.npy"), Ones({2})); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] {
              WriteNpz(Path("none/x.npz"), {{"x", Ones({2})}});
            }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] { WriteNpz(Path("x.npz"), {}); }).code(),
            absl::StatusCode::kInvalidArgument);
}

// A zip with entries of this kind, made by libzip itself.
std::string ZipOf(const std::string& entry, const std::string& content) {
  const std::string path = Path("made.npz");
  std::remove(path.c_str());
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
  zip_file_add(archive, entry.c_str(), source, 0);
  EXPECT_EQ(zip_close(archive), 0);
  return path;
}

TEST(Npz, Errors) {
  EXPECT_THAT(ErrorOf([] { ReadNpz(ZipOf("notes.txt", "hello")); }).message(),
              HasSubstr("entry \"notes.txt\": found another file, expected arrays"));
  EXPECT_THAT(ErrorOf([] { ReadNpz(ZipOf("w.npy", "hello, this is no array")); }).message(),
              HasSubstr("entry \"w.npy\": byte 0: found"));
  const std::string two = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_THAT(ErrorOf([&] { ReadNpz(ZipOf("w.npy", NumpyFile(two, "123456789"))); }).message(),
              HasSubstr("entry \"w.npy\": found 9 bytes of data, expected 8 for [2] f32"));
  WriteNpz(Path("good.npz"), {{"w", Ones({100})}});
  std::string bytes = Read(Path("good.npz"));
  bytes[bytes.find("\x80\x3f") + 4]++;
  const Error crc = ErrorOf([&] { ReadNpz(WriteTestFile("crc.npz", bytes)); });
  EXPECT_EQ(crc.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(crc.message(), AllOf(HasSubstr("entry \"w.npy\""), HasSubstr("CRC")));
  const Error other = ErrorOf([] { ReadNpz(WriteTestFile("other.npz", "no zip at all")); });
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tidepool
