#include "tidepool/memory/io/testing/byte_mutator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "gtest/gtest.h"

namespace tidepool {

uint64_t FuzzSeed() {
  const char* text = std::getenv("TIDEPOOL_FUZZ_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : 20240607;
  std::printf("fuzz seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

int FuzzCases(int otherwise) {
  const char* text = std::getenv("TIDEPOOL_FUZZ_CASES");
  return text != nullptr ? std::atoi(text) : otherwise;
}

ByteMutator::ByteMutator(uint64_t seed, std::vector<std::string> corpus, size_t max_bytes)
    : random_(seed), corpus_(std::move(corpus)), max_bytes_(max_bytes) {}

// The slight bias of the remainder does not matter here; std::uniform_int_distribution would give
// other cases on other standard libraries.
size_t ByteMutator::Below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

void ByteMutator::MutateLength(std::string& bytes) {
  const size_t width = size_t{1} << Below(4);
  if (bytes.size() < width) return;
  // Half of the time near the start, where most formats keep their lengths.
  const size_t range = bytes.size() - width + 1;
  const size_t at = Below(Below(2) == 0 ? std::min<size_t>(range, 32) : range);
  const bool big_endian = Below(2) == 0;
  uint64_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    const size_t index = big_endian ? i : width - 1 - i;
    value = value << 8 | static_cast<unsigned char>(bytes[at + index]);
  }
  const uint64_t values[] = {0,
                             1,
                             ~uint64_t{0},
                             ~uint64_t{0} - 7,
                             uint64_t{1} << (8 * width - 1),
                             (uint64_t{1} << (8 * width - 1)) - 1,
                             bytes.size(),
                             value + 1,
                             value - 1,
                             value * 2,
                             value + Below(16),
                             value - Below(16)};
  value = values[Below(std::size(values))];
  for (size_t i = 0; i < width; ++i) {
    bytes[at + (big_endian ? width - 1 - i : i)] = static_cast<char>(value >> (8 * i));
  }
}

void ByteMutator::Mutate(std::string& bytes) {
  const size_t at = Below(bytes.size());
  const size_t length = Below(std::min<size_t>(bytes.size() - at, 64) + 1);
  switch (Below(11)) {
    case 0:  // bit flips
      for (size_t n = 1 + Below(8); n > 0 && !bytes.empty(); --n) {
        bytes[Below(bytes.size())] ^= static_cast<char>(1 << Below(8));
      }
      return;
    case 1:
      for (size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(random_());
      return;
    case 2:
      bytes.resize(at);
      return;
    case 3:
      bytes.erase(at, length);
      return;
    case 4: {
      std::string noise(1 + Below(32), '\0');
      for (char& c : noise) c = static_cast<char>(random_());
      bytes.insert(at, noise);
      return;
    }
    case 5:
      bytes.insert(at, bytes.substr(at, length));
      return;
    case 6: {  // the start of this file, the end of another
      const std::string& other = corpus_[Below(corpus_.size())];
      bytes = bytes.substr(0, at) + other.substr(Below(other.size() + 1));
      return;
    }
    case 7:
    case 8:
      return MutateLength(bytes);
    case 9: {  // digits and punctuation, for formats with text
      constexpr char kText[] = "0123456789-.eE\"{}[],: \\u";
      const auto is_text = [](unsigned char c) { return c >= 0x20 && c < 0x7f; };
      for (int tries = 0; tries < 32 && !bytes.empty(); ++tries) {
        char& c = bytes[Below(bytes.size())];
        if (!is_text(static_cast<unsigned char>(c))) continue;
        c = kText[Below(sizeof(kText) - 1)];
        return;
      }
      return;
    }
    default:
      if (Below(20) != 0) return MutateLength(bytes);
      bytes.resize(Below(128));
      for (char& c : bytes) c = static_cast<char>(random_());
  }
}

uint64_t ByteMutator::Number(uint64_t near) {
  switch (Below(5)) {
    case 0:
      return Below(9);
    case 1:
      return near + Below(17) - 8;
    case 2:
      return (uint64_t{1} << Below(64)) + Below(3) - 1;
    case 3:
      return near * Below(5);
    default:
      return random_() >> Below(64);
  }
}

std::string ByteMutator::Next() {
  std::string bytes = corpus_[Below(corpus_.size())];
  for (size_t n = 1 + Below(4); n > 0; --n) Mutate(bytes);
  if (bytes.size() > max_bytes_) bytes.resize(max_bytes_);
  return bytes;
}

std::string WriteTestFile(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file) << path;
  return path;
}

}  // namespace tidepool
