// What libFuzzer calls: the target that TIDEPOOL_FUZZ_TARGET names, or the first. A failure ends
// the program.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace {

const tidepool::FuzzTarget* target = nullptr;
std::vector<std::string>* corpus = nullptr;

// libFuzzer's own limit, of 4 KiB, would cut every larger file of the corpus.
void LimitLength(int* argc, char*** argv) {
  static std::string limit = "-max_len=" + std::to_string(target->max_bytes);
  static std::vector<char*> arguments(*argv, *argv + *argc);
  for (const char* const argument : arguments) {
    if (std::strncmp(argument, "-max_len=", 9) == 0) return;
  }
  arguments.push_back(limit.data());
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  *argv = arguments.data();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  testing::InitGoogleTest(argc, *argv);
  GTEST_FLAG_SET(break_on_failure, true);
  const char* const wanted = std::getenv("TIDEPOOL_FUZZ_TARGET");
  for (const tidepool::FuzzTarget& each : tidepool::FuzzTargets()) {
    if (target == nullptr && (wanted == nullptr || std::strcmp(wanted, each.name) == 0))
      target = &each;
  }
  if (target == nullptr) {
    std::fprintf(stderr, "no target %s; there are:", wanted);
    for (const tidepool::FuzzTarget& each : tidepool::FuzzTargets())
      std::fprintf(stderr, " %s", each.name);
    std::fprintf(stderr, "\n");
    std::exit(1);
  }
  corpus = new std::vector<std::string>(target->corpus());
  LimitLength(argc, argv);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tidepool::RunFuzzInput(*target, std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  tidepool::ByteMutator mutator(seed, *corpus, max_size);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size <= 1 || mutator.Below(64) == 0) bytes = (*corpus)[mutator.Below(corpus->size())];
  if (mutator.Below(2) == 0 && bytes.size() <= max_size) {
    // libFuzzer's own changes know what the program compares with.
    std::vector<uint8_t> room(bytes.begin(), bytes.end());
    room.resize(max_size);
    bytes.assign(reinterpret_cast<const char*>(room.data()),
                 LLVMFuzzerMutate(room.data(), bytes.size(), max_size));
    if (target->repair != nullptr && mutator.Below(4) != 0) target->repair(bytes);
  } else {
    tidepool::ChangeFuzzInput(*target, mutator, bytes);
  }
  if (bytes.size() > max_size) bytes.resize(max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
