// Every route by which memory is taken is on the ledger: what the operating system and malloc say
// this process holds moves as the ledger does, around training, inference, spills and files.
//
// The witness: private writable anonymous mappings (/proc/self/maps) without malloc's and the
// stacks, plus what malloc has handed out (mallinfo2). Resident bytes are smaps_rollup's.
#include <malloc.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnMalloc = false;  // a sanitizer's malloc, with memory of its own
#else
constexpr bool kOwnMalloc = true;
#endif

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
// Not on the ledger: names, layers, vectors of a model, XNNPACK operators' own structures, malloc's
// headers, the alignment and the readable tail of some tens of arrays. 63 KiB were seen, of 29 MiB.
constexpr int64_t kUncounted = 96 * kKiB;
// Malloc keeps some freed pages after malloc_trim() too; where the system uses huge pages for its
// heap, one may be taken whole at either end. 60 KiB were seen.
constexpr int64_t kResidentSlack = kMiB;

struct Witness {
  int64_t mapped = 0;    // by others than malloc
  int64_t malloced = 0;  // handed out
  int64_t resident = 0;

  static Witness Now() {
    malloc_trim(0);
    Witness witness;
    const struct mallinfo2 info = mallinfo2();
    witness.malloced = static_cast<int64_t>(info.uordblks + info.hblkhd);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin, end, offset, inode;
      char permissions[5], device[16];
      if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %15s %lu", &begin, &end, permissions, &offset,
                      device, &inode) != 6) {
        ADD_FAILURE() << line;
        continue;
      }
      const bool stack = line.find("[stack") != std::string::npos;
      if (permissions[1] == 'w' && permissions[3] == 'p' && inode == 0 && !stack) {
        witness.mapped += static_cast<int64_t>(end - begin);
      }
    }
    witness.mapped -= static_cast<int64_t>(info.arena + info.hblkhd);
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
      if (line.rfind("Anonymous:", 0) != 0) continue;
      witness.resident = std::strtoll(line.c_str() + std::strlen("Anonymous:"), nullptr, 10) * kKiB;
    }
    return witness;
  }
  int64_t total() const { return mapped + malloced; }
};

int64_t Counted() {
  const DeviceMemory host = MemoryTracker::Global().Snapshot()[Host()];
  return host.total.current_bytes;
}

// Compares both since construction.
class Comparison {
 public:
  Comparison() : witness_(Witness::Now()), counted_(Counted()) {}

  int64_t counted() const { return Counted() - counted_; }
  // What the system knows of and the ledger does not.
  int64_t Uncounted() const { return Witness::Now().total() - witness_.total() - counted(); }
  void Check(const char* when) const {
    const Witness now = Witness::Now();
    const int64_t counted = Counted() - counted_;
    const int64_t mapped = now.mapped - witness_.mapped;
    const int64_t malloced = now.malloced - witness_.malloced;
    const int64_t resident = now.resident - witness_.resident;
    std::printf("%-34s ledger %10ld  mapped %10ld + malloc %10ld = ledger %+8ld  resident %10ld\n",
                when, static_cast<long>(counted), static_cast<long>(mapped),
                static_cast<long>(malloced), static_cast<long>(mapped + malloced - counted),
                static_cast<long>(resident));
    EXPECT_LE(mapped + malloced - counted, kUncounted) << when << ": taken and not counted";
    EXPECT_GE(mapped + malloced - counted, -4 * kKiB) << when << ": counted and not taken";
    EXPECT_LE(resident - counted, kResidentSlack) << when << ": resident and not counted";
    EXPECT_GE(resident - counted, -kResidentSlack) << when << ": counted and not resident";
    // The budget counts what was taken; the ledger also the runtime's own records.
    const DeviceMemory host = MemoryTracker::Global().Snapshot()[Host()];
    EXPECT_EQ(MemoryBudget::Global().Of(Host()).taken_bytes,
              host.total.current_bytes - host[MemoryKind::kWorkspace].current_bytes)
        << when;
  }

 private:
  const Witness witness_;
  const int64_t counted_;
};

// A few steps and requests of every kind, so that libraries have set themselves up.
void WarmUp(const std::string& model_name, const LabelledImages& digits) {
  Model model = MakeModel(model_name, {28, 28, 1}, 10, 1, WorkspaceMode::kEnabled);
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
  ImageBatches batches(digits, 8);
  for (int i = 0; i < 3; ++i) trainer.Step([&] { return batches.Make(0); });
  for (int i = 0; i < 3; ++i) {
    model.network->Infer([&] { return batches.Make(0).features; }, [](const NDArray&) {});
  }
  Reclaimer::Global().RunNow();
}

void TrainAndCompare(const std::string& model_name, UpdaterKind updater) {
  if (!kOwnMalloc) GTEST_SKIP() << "a sanitizer's malloc keeps memory of its own";
  SetThreadCount(1);
  {
    const ImageFolder images = LoadImageFolder("examples/data/mnist");
    WarmUp(model_name, images.train);
  }
  Reclaimer::Global().RunNow();
  const Comparison comparison;
  comparison.Check("nothing yet");

  std::optional<ImageFolder> images = LoadImageFolder("examples/data/mnist");
  comparison.Check("data set read");
  EXPECT_GT(comparison.counted(), kMiB);

  std::optional<Model> model = MakeModel(model_name, {28, 28, 1}, 10, 1, WorkspaceMode::kEnabled);
  auto trainer = std::make_unique<Trainer>(*model->network, UpdaterConfig::Of(updater));
  comparison.Check("network and updater");
  const int64_t before_steps = comparison.counted();
  {
    const ImageBatches batches(images->train, 128);
    for (int i = 0; i < 6; ++i) {
      trainer->Step([&] { return batches.Make(i % batches.size()); });
      if (i == 0) comparison.Check("after the first step");
    }
    comparison.Check("after six steps");
    EXPECT_GT(comparison.counted(), before_steps + kMiB / 2);  // the workspace's pages

    for (int i = 0; i < 3; ++i) {
      model->network->Infer([&] { return batches.Make(0).features; }, [](const NDArray&) {});
    }
    {
      // Few pixels, which XNNPACK has on every processor.
      Conv2dAttributes a;
      a.filter_is_constant = true;
      const NDArray filter = Full({64, 3, 3, 64}, 1, DType::kFloat32, Place::Heap());
      Conv2d(Full({1, 4, 4, 64}, 1, DType::kFloat32, Place::Heap()), filter, nullptr, a);
    }
    comparison.Check("inference, weights packed");
    EXPECT_GT(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal), 0);
  }

  const std::string path = testing::TempDir() + "/" + model_name + ".safetensors";
  SaveModel(*model, path);
  {
    const SafetensorsReader reader = SafetensorsReader::Open(path);
    comparison.Check("model file open");
    EXPECT_GT(reader.tensors().size(), 0u);
  }
  {
    const Model loaded = LoadModel(path);
    comparison.Check("second network, from the file");
  }

  {
    WorkspaceConfig config;
    config.policy_learning = LearningPolicy::kNone;
    config.temp_block_size = 256 * kKiB;  // small requests have a chunk, of which little is touched
    Workspace spills("spills", config);
    WorkspaceScope scope(spills);
    const BufferHandle a(AllocateHere(3 * kMiB)), b(AllocateHere(100));
    std::memset(a->data, 1, a->bytes);
    comparison.Check("a workspace that spills");
  }
  comparison.Check("spills gone");

  trainer.reset();
  model.reset();
  images.reset();
  Reclaimer::Global().RunNow();
  comparison.Check("all gone");
  EXPECT_LT(comparison.counted(), 64 * kKiB);
}

TEST(EveryRouteCounted, LenetWithAdam) { TrainAndCompare("lenet", UpdaterKind::kAdam); }
TEST(EveryRouteCounted, MlpWithNesterovs) { TrainAndCompare("mlp", UpdaterKind::kNesterovs); }

// The comparison finds what is not counted, by either route, and what is counted without being.
TEST(EveryRouteCounted, TheWitnessSeesWhatTheLedgerDoesNot) {
  if (!kOwnMalloc) GTEST_SKIP() << "a sanitizer's malloc keeps memory of its own";
  const Comparison comparison;
  EXPECT_LT(std::abs(comparison.Uncounted()), 4 * kKiB);
  void* pages = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NEAR(comparison.Uncounted(), kMiB, 4 * kKiB);
  munmap(pages, kMiB);
  for (int64_t bytes : {64 * kKiB, 4 * kMiB}) {  // from an arena, and mapped for itself
    void* volatile block = std::malloc(bytes);
    EXPECT_NEAR(comparison.Uncounted(), bytes, 8 * kKiB);
    std::free(block);
  }
  MemoryTracker::Global().Add(Host(), MemoryKind::kAllocated, kMiB);
  EXPECT_NEAR(comparison.Uncounted(), -kMiB, 4 * kKiB);
  MemoryTracker::Global().Add(Host(), MemoryKind::kAllocated, -kMiB);
}

}  // namespace
}  // namespace tidepool::nn
