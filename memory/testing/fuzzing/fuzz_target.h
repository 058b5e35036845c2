// A reader of inputs that nobody should trust, and how to feed it: once written, it runs as a test
// and under clang's libFuzzer.
//
//   void ReadOne(const std::string& bytes) { ParseNpy(bytes, "case"); }  // throws where it refuses
//   TIDEPOOL_FUZZ_TARGET(Npy, {.corpus = &NpyFiles, .mutate = &MutateNpy, .run = &ReadOne});
//
// Each input is read and must be accepted or refused with a proper tidepool::Error: of one line, of
// a length one can read. While it is read no more memory may be held than 64 times its bytes and
// the target's constant, on the heap (heap_watch.h) and in pages (the ledger, without imported
// memory): a reader that believes a size fails. For what is compressed the constant has the limit
// that `run` hands the reader. `run` checks the rest with GoogleTest's EXPECT_ and ASSERT_.
//
// As a test it reads `cases` inputs; more, or others, by TIDEPOOL_FUZZ_CASES and
// TIDEPOOL_FUZZ_SEED. An input that fails is left in the test's outputs. By hand:
//
//   bazel build --config=fuzz //ndarray/io:fuzz
//   TIDEPOOL_FUZZ_TARGET=Npz bazel-bin/ndarray/io/fuzz -max_total_time=600
//
// Cost: one input at a time; a handle to a file in memory.
#ifndef TIDEPOOL_MEMORY_TESTING_FUZZING_FUZZ_TARGET_H_
#define TIDEPOOL_MEMORY_TESTING_FUZZING_FUZZ_TARGET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/io/testing/byte_mutator.h"

namespace tidepool {

struct FuzzTarget {
  const char* name = nullptr;  // by TIDEPOOL_FUZZ_TARGET
  // Small valid inputs, and some that are just not. Made once.
  std::vector<std::string> (*corpus)() = nullptr;
  // Changes one thing that the format knows of: a field, a record, a length that is made to fit
  // again. Null: bytes only.
  void (*mutate)(ByteMutator& mutator, std::string& bytes) = nullptr;
  // Puts right what would refuse any other change, such as a checksum or the length of a header.
  // Run after three of four.
  void (*repair)(std::string& bytes) = nullptr;
  void (*run)(const std::string& bytes) = nullptr;
  size_t constant_bytes = size_t{1} << 20;
  int cases = 5000;
  int accepted_one_in = 200;           // at least; at most every second is
  size_t max_bytes = size_t{1} << 14;  // of an input
};

// One input. True: accepted. Failures are GoogleTest's, with the input's bytes kept in the test's
// outputs.
bool RunFuzzInput(const FuzzTarget& target, const std::string& bytes);
// The target's `cases`, of which some must be accepted and some refused.
void RunFuzzCases(const FuzzTarget& target);
// The next input: one of `bytes` after a few changes.
void ChangeFuzzInput(const FuzzTarget& target, ByteMutator& mutator, std::string& bytes);

// A file in memory with these bytes, until the next call; its path. Not of several threads.
std::string FuzzFile(const std::string& bytes);

const std::vector<FuzzTarget>& FuzzTargets();
bool RegisterFuzzTarget(FuzzTarget target, const char* name);

#define TIDEPOOL_FUZZ_TARGET(Name, ...)                                          \
  static const bool Name##_is_registered =                                       \
      ::tidepool::RegisterFuzzTarget(::tidepool::FuzzTarget __VA_ARGS__, #Name); \
  TEST(Fuzz, Name) {                                                             \
    ASSERT_TRUE(Name##_is_registered);                                           \
    for (const auto& target : ::tidepool::FuzzTargets()) {                       \
      if (std::string(target.name) == #Name) ::tidepool::RunFuzzCases(target);   \
    }                                                                            \
  }                                                                              \
  static_assert(true, "a semicolon follows")

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_FUZZING_FUZZ_TARGET_H_
