#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/fuzzing/heap_watch.h"

namespace tidepool {
namespace {

constexpr int64_t kMostPerByte = 64;

std::vector<FuzzTarget>& Targets() {
  static auto* const targets = new std::vector<FuzzTarget>();
  return *targets;
}

// What is imported is somebody else's memory.
int64_t OwnedBytes(const PeakScope::Bytes& bytes) {
  return bytes.total - bytes.kinds[static_cast<size_t>(MemoryKind::kExternal)];
}

void Keep(const FuzzTarget& target, const std::string& bytes) {
  const char* const outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string path =
      std::string(outputs != nullptr ? outputs : ".") + "/failed_" + target.name;
  std::ofstream(path, std::ios::binary) << bytes;
  std::printf("the input is in %s\n", path.c_str());
}

}  // namespace

const std::vector<FuzzTarget>& FuzzTargets() { return Targets(); }

bool RegisterFuzzTarget(FuzzTarget target, const char* name) {
  target.name = name;
  Targets().push_back(target);
  return true;
}

std::string FuzzFile(const std::string& bytes) {
  static const int file = memfd_create("fuzz", MFD_CLOEXEC);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    ADD_FAILURE() << "no file in memory";
  }
  return path;
}

bool RunFuzzInput(const FuzzTarget& target, const std::string& bytes) {
  const bool failed_before = testing::Test::HasFailure();
  PeakScope pages;
  const HeapWatch heap;
  bool accepted = false;
  try {
    target.run(bytes);
    accepted = true;
  } catch (const Error& error) {
    EXPECT_EQ(MessageFlaw(error), "") << error.message().substr(0, 2000);
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not a tidepool::Error: " << other.what();
  }
  const int64_t on_heap = heap.peak_bytes();
  pages.End();
  const int64_t in_pages = OwnedBytes(pages.peak()) - OwnedBytes(pages.start());
  const int64_t most = kMostPerByte * static_cast<int64_t>(bytes.size()) +
                       static_cast<int64_t>(target.constant_bytes);
  EXPECT_LE(on_heap, most) << "on the heap, for an input of " << bytes.size() << " bytes";
  EXPECT_LE(in_pages, most) << "on the ledger, for an input of " << bytes.size() << " bytes";
  if (testing::Test::HasFailure() && !failed_before) Keep(target, bytes);
  return accepted;
}

void ChangeFuzzInput(const FuzzTarget& target, ByteMutator& mutator, std::string& bytes) {
  for (size_t n = 1 + mutator.Below(4); n > 0; --n) {
    if (target.mutate != nullptr && mutator.Below(4) != 0) {
      target.mutate(mutator, bytes);
    } else {
      mutator.Mutate(bytes);
    }
  }
  if (bytes.size() > target.max_bytes) bytes.resize(target.max_bytes);
  if (target.repair != nullptr && mutator.Below(4) != 0) target.repair(bytes);
}

void RunFuzzCases(const FuzzTarget& target) {
  const std::vector<std::string> corpus = target.corpus();
  int accepted = 0;
  for (const std::string& bytes : corpus) accepted += RunFuzzInput(target, bytes);
  EXPECT_GT(accepted, 0) << "nothing of the corpus is valid";
  ByteMutator mutator(FuzzSeed(), corpus, target.max_bytes);
  const int cases = FuzzCases(target.cases);
  accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    std::string bytes = corpus[mutator.Below(corpus.size())];
    ChangeFuzzInput(target, mutator, bytes);
    accepted += RunFuzzInput(target, bytes);
  }
  std::printf("%s: %d inputs, %d accepted\n", target.name, cases, accepted);
  // Both must occur, or nothing is tested.
  EXPECT_GT(accepted, cases / target.accepted_one_in);
  EXPECT_LT(accepted, cases / 2);
}

}  // namespace tidepool
