// Damages valid files in the ways that break parsers, for fuzz tests that need no fuzzing engine.
//
//   ByteMutator mutator(FuzzSeed(), {valid_file, another});
//   for (int i = 0; i < FuzzCases(); ++i) Parse(mutator.Next());
//
// The same seed gives the same cases on every machine. Threads: one thread per mutator.
#ifndef TIDEPOOL_MEMORY_IO_TESTING_BYTE_MUTATOR_H_
#define TIDEPOOL_MEMORY_IO_TESTING_BYTE_MUTATOR_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tidepool {

// TIDEPOOL_FUZZ_SEED of the environment, else a constant; printed, so that a failure can be
// repeated.
uint64_t FuzzSeed();
// TIDEPOOL_FUZZ_CASES of the environment, else `otherwise`.
int FuzzCases(int otherwise);

class ByteMutator {
 public:
  // `corpus` holds valid files; no case is longer than `max_bytes`.
  ByteMutator(uint64_t seed, std::vector<std::string> corpus, size_t max_bytes = size_t{1} << 16);

  // One of the corpus after 1 to 4 of: bit flips, random bytes, truncation, removal, insertion,
  // repetition, a piece of another file spliced in, a length field of 1, 2, 4 or 8 bytes (either
  // byte order) set to a boundary value or moved by a little, a digit changed, or all random.
  std::string Next();
  // One of these changes, for who knows which bytes are worth it.
  void Mutate(std::string& bytes);
  // Evenly from 0 to bound - 1; 0 of nothing. For who changes what a format knows of.
  size_t Below(size_t bound);
  // A number that sizes are worth trying as: small, about `near`, about a power of two, or
  // anything.
  uint64_t Number(uint64_t near);

 private:
  void MutateLength(std::string& bytes);

  std::mt19937_64 random_;
  std::vector<std::string> corpus_;
  size_t max_bytes_;
};

// A file in the test's temporary folder holding `bytes`; returns its path.
std::string WriteTestFile(const std::string& name, const std::string& bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_TESTING_BYTE_MUTATOR_H_
