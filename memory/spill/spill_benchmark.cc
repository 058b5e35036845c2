// What a spill file does of what the disk can (P10 of docs/performance.md): 256 MiB in blocks of 4 MiB past
// the page cache, written and read; "raw" is one thread for each block in flight that moves aligned
// memory itself, without a copy or checksum, and RawOne a single one.
//
// Packing: a block of 4 MiB of floats packed and unpacked, by what it has; "share" is what it is packed to.
//
//   bazel run //memory/spill:spill_benchmark            # in $TIDEPOOL_SPILL_FOLDER, else $TMPDIR, else /var/tmp
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spill_packer.h"

namespace tidepool {
namespace {

constexpr size_t kBlock = size_t{4} << 20;
constexpr size_t kBytes = size_t{1} << 28;

struct Memory {
  Memory() : data(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBytes))) {
    for (size_t i = 0; i < kBytes; i += 8) {
      const uint64_t value = i * 0x9e3779b97f4a7c15u;
      std::memcpy(data + i, &value, 8);
    }
  }
  ~Memory() { std::free(data); }
  std::byte* const data;
};
Memory& Data() {
  static Memory memory;
  return memory;
}

class RawFile {
 public:
  RawFile() {
    std::string folder = "/var/tmp";
    for (const char* const variable : {"TMPDIR", "TIDEPOOL_SPILL_FOLDER"}) {
      if (const char* const value = std::getenv(variable)) folder = value;
    }
    descriptor_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (descriptor_ < 0 || posix_fallocate(descriptor_, 0, kBytes) != 0) ThrowErrno(errno, folder);
    Move(true, 4);
  }
  ~RawFile() { close(descriptor_); }

  void Move(bool writes, int threads) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&] {
        for (size_t at; (at = next.fetch_add(kBlock)) < kBytes;) {
          std::byte* const data = Data().data + at;
          const auto offset = static_cast<off_t>(at);
          const ssize_t moved = writes ? pwrite(descriptor_, data, kBlock, offset)
                                       : pread(descriptor_, data, kBlock, offset);
          if (moved != static_cast<ssize_t>(kBlock)) ThrowErrno(errno, "a block");
        }
      });
    }
    for (std::thread& thread : all) thread.join();
  }

 private:
  int descriptor_ = -1;
};

void Raw(benchmark::State& state, bool writes) {
  static RawFile file;
  for (auto _ : state) file.Move(writes, static_cast<int>(state.range(0)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes));
}
void RawWrite(benchmark::State& state) { Raw(state, true); }
void RawRead(benchmark::State& state) { Raw(state, false); }

void Spill(benchmark::State& state, bool writes) {
  SpillFile file({.in_flight = static_cast<int>(state.range(0))});
  SpilledBytes kept = file.Write(Data().data, kBytes);
  for (auto _ : state) {
    if (writes) {
      kept = {};
      kept = file.Write(Data().data, kBytes);
    } else {
      file.Read(kept, Data().data);
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes));
  state.SetLabel(file.stats().queue + (file.stats().direct ? ", direct" : ", cached"));
}
void SpillWrite(benchmark::State& state) { Spill(state, true); }
void SpillRead(benchmark::State& state) { Spill(state, false); }

// Normal numbers, so many of 1000 of which are zero, here and there or in runs of 576.
struct Floats {
  const char* name;
  int zeros;
  bool in_runs;
};

std::vector<float> Draw(const Floats& kind) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kBlock / sizeof(float));
  bool is_zero = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!kind.in_runs || i % 576 == 0) is_zero = static_cast<int>(random() % 1000) < kind.zeros;
    values[i] = is_zero ? 0 : normal(random);
  }
  return values;
}

void Packing(benchmark::State& state, const Floats& kind, bool unpacks) {
  const std::vector<float> values = Draw(kind);
  const auto* const from = reinterpret_cast<const std::byte*>(values.data());
  std::vector<std::byte> packed(kBlock), back(kBlock);
  internal::SpillPacker packer(SpillCompression::kLz4);
  size_t bytes = packer.Pack(from, kBlock, packed.data());
  if (unpacks && bytes == 0) return state.SkipWithError("it does not become smaller");
  for (auto _ : state) {
    if (unpacks) {
      packer.Unpack(packed.data(), bytes, back.data(), kBlock);
    } else {
      bytes = packer.Pack(from, kBlock, packed.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBlock));
  state.counters["share"] = bytes == 0 ? 1 : static_cast<double>(bytes) / kBlock;
}

constexpr Floats kNormal = {"normal", 0, false};
constexpr Floats kFloats[] = {{"half_zero", 500, false},
                              {"seven_of_ten_zero", 700, false},
                              {"nine_of_ten_zero", 900, false},
                              {"half_zero_in_runs", 500, true},
                              {"zero", 1000, false}};

[[maybe_unused]] const bool registered = [] {
  const auto add = [](const Floats& kind, bool unpacks) {
    const std::string name = std::string(unpacks ? "Unpacking/" : "Packing/") + kind.name;
    benchmark::RegisterBenchmark(name.c_str(), Packing, kind, unpacks)
        ->Unit(benchmark::kMillisecond);
  };
  add(kNormal, false);
  for (const Floats& kind : kFloats) {
    add(kind, false);
    add(kind, true);
  }
  return true;
}();

BENCHMARK(RawWrite)->Arg(1)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(SpillWrite)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(RawRead)->Arg(1)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(SpillRead)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool
