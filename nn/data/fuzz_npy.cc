// NumPy's files as examples that are read as they are asked for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/nn/data/npy_examples.h"

namespace tidepool::nn {
namespace {

std::string NpyOf(const std::string& header, const std::string& data) {
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(header.size());
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}

std::vector<std::string> ExampleFiles() {
  const auto header = [](const char* descr, const char* order, const char* shape) {
    return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape,
                        ", }      \n");
  };
  return {NpyOf(header("<f4", "False", "(5, 3)"), std::string(60, 'a')),
          NpyOf(header(">f8", "False", "(3, 2)"), std::string(48, 'b')),
          NpyOf(header(">i2", "True", "(9,)"), std::string(18, 'c')),
          NpyOf(header("<f4", "True", "(2, 3)"), std::string(24, 'd')),
          NpyOf(header("|b1", "False", "(6,)"), std::string("\0\1\2\xff\0\7", 6)),
          NpyOf(header("<i8", "False", "()"), std::string(8, 'e')),
          NpyOf(header("|u1", "False", "(0, 1152921504606846976)"), ""),
          NpyOf(header("|u1", "False", "(1152921504606846976, 0)"), ""),
          NpyOf(header("<f4", "False", "(4, 2, 1, 3)"), std::string(96, 'f')),
          SerializeNpyHeader(DType::kInt64, {4}) + std::string(32, 'g')};
}

// A number of the header, or the data's end.
void MutateExamples(ByteMutator& mutator, std::string& bytes) {
  const size_t data = bytes.find('\n');
  std::vector<size_t> numbers;
  for (size_t i = 10; data != std::string::npos && i < data; ++i) {
    const auto is_digit = [&](size_t at) { return bytes[at] >= '0' && bytes[at] <= '9'; };
    if (is_digit(i) && !is_digit(i - 1)) numbers.push_back(i);
  }
  if (numbers.empty() || mutator.Below(4) == 0) return mutator.Mutate(bytes);
  if (mutator.Below(4) == 0) {
    bytes.resize(data + 1 + mutator.Below(128), 'x');
    return;
  }
  const size_t at = numbers[mutator.Below(numbers.size())];
  size_t end = at;
  while (bytes[end] >= '0' && bytes[end] <= '9') ++end;
  bytes.replace(at, end - at, absl::StrCat(mutator.Number(12)));
}

// The header's length, and, where there is a header, the data's.
void RepairExamples(std::string& bytes) {
  const size_t newline = bytes.find('\n', 10);
  if (bytes.size() < 12 || bytes[6] != 1 || newline == std::string::npos) return;
  const size_t length = newline + 1 - 10;
  bytes[8] = static_cast<char>(length);
  bytes[9] = static_cast<char>(length >> 8);
  if (bytes.size() % 3 == 0) return;
  try {
    const NpyHeader header = ParseNpyHeader(bytes.substr(10, length), "repair");
    if (header.data_bytes() < 4096) bytes.resize(10 + length + header.data_bytes(), '\1');
  } catch (const Error&) {
  }
}

std::string BytesOf(const NDArray& array) {
  return {reinterpret_cast<const char*>(array.raw_data()),
          static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype())};
}

// Rows in any order, and some twice, are those of the whole array.
void ReadExamples(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  std::unique_ptr<NpyExamples> examples;
  try {
    examples = std::make_unique<NpyExamples>(NpyFiles{.features = path, .labels = path});
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kInvalidArgument ||
                error.code() == absl::StatusCode::kUnimplemented)
        << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    throw;
  }
  // What it takes, the reader of whole arrays takes.
  const NDArray whole = ReadNpy(path);
  ASSERT_EQ(examples->count(), whole.dim(0));
  if (examples->count() == 0) return;
  const int64_t count = std::min<int64_t>(examples->count(), 40);
  std::vector<uint32_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(static_cast<uint32_t>(i * 7 % count));
  for (const ChosenExamples& which :
       {ChosenExamples(order, count, 1, count + 3),                              // in any order
        ChosenExamples({}, examples->count(), examples->count() - 1, count)}) {  // round the end
    const DataSet set = examples->Make(which, std::stop_token());
    for (const NDArray* const rows : {&set.features, &set.labels}) {
      ASSERT_EQ(rows->dim(0), which.size());
      ASSERT_EQ(rows->dtype(), whole.dtype());
      for (int64_t i = 0; i < which.size(); ++i) {
        ASSERT_EQ(BytesOf(rows->Slice(0, i, i + 1)),
                  BytesOf(whole.Slice(0, which[i], which[i] + 1)));
      }
    }
  }
}

TIDEPOOL_FUZZ_TARGET(NpyExamples, {.corpus = &ExampleFiles,
                                   .mutate = &MutateExamples,
                                   .repair = &RepairExamples,
                                   .run = &ReadExamples,
                                   .constant_bytes = size_t{1} << 20,
                                   .cases = 10000});

}  // namespace
}  // namespace tidepool::nn
