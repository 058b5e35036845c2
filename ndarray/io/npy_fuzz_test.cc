// Every damaged .npy or .npz file parses into arrays or throws tidepool::Error.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"

namespace tidepool {
namespace {

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<NDArray> Some() {
  return {Arange(0, 6).Reshape({2, 3}), Ones({4}, DType::kInt64), Full({}, 3, DType::kFloat16),
          Zeros({0, 2}, DType::kUInt8)};
}

// Touches every byte, for AddressSanitizer.
uint64_t Sum(const NDArray& array) {
  const NDArray dense = array.Dup();
  uint64_t sum = 0;
  const size_t bytes = static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype());
  for (size_t i = 0; i < bytes; ++i) sum += std::to_integer<uint64_t>(dense.raw_data()[i]);
  return sum;
}

template <typename Parse>
void Fuzz(const std::vector<std::string>& corpus, int cases, Parse parse) {
  ByteMutator mutator(FuzzSeed(), corpus, 1 << 14);
  int parsed = 0, refused = 0;
  for (int i = 0; i < cases; ++i) {
    const std::string bytes = mutator.Next();
    try {
      parse(bytes);
      ++parsed;
    } catch (const Error& error) {
      ASSERT_FALSE(error.message().empty());
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << "case " << i << ": " << error.what();
    }
  }
  std::printf("%d parsed, %d refused\n", parsed, refused);
  EXPECT_GT(parsed, 0);
  EXPECT_GT(refused, cases / 4);
}

TEST(NpyFuzz, DamagedFiles) {
  std::vector<std::string> corpus;
  for (const NDArray& array : Some()) {
    const std::string path = testing::TempDir() + "/corpus.npy";
    WriteNpy(path, array);
    corpus.push_back(BytesOf(path));
  }
  uint64_t sum = 0;
  Fuzz(corpus, FuzzCases(20000), [&](const std::string& bytes) {
    sum += Sum(ParseNpy(bytes, "fuzz"));
  });
  Fuzz(corpus, FuzzCases(2000), [&](const std::string& bytes) {
    sum += Sum(ReadNpy(WriteTestFile("fuzz.npy", bytes)));
  });
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
}

TEST(NpzFuzz, DamagedFiles) {
  std::map<std::string, NDArray> arrays;
  for (const NDArray& array : Some()) arrays["array_" + std::to_string(arrays.size())] = array;
  std::vector<std::string> corpus;
  for (const NpzCompression compression : {NpzCompression::kNone, NpzCompression::kDeflate}) {
    const std::string path = testing::TempDir() + "/corpus.npz";
    WriteNpz(path, arrays, compression);
    corpus.push_back(BytesOf(path));
  }
  uint64_t sum = 0;
  Fuzz(corpus, FuzzCases(4000), [&](const std::string& bytes) {
    for (const auto& [name, array] : ReadNpz(WriteTestFile("fuzz.npz", bytes))) sum += Sum(array);
  });
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
}

}  // namespace
}  // namespace tidepool
