// MemoryLog: what memory was at moments the program names, as a table in a file.
//
//   MemoryLog log({.owners = {"network/workspace training"}});
//   for (int64_t i = 0; i < batches.size(); ++i) {
//     trainer.Step([&] { return batches.Make(i); });
//     log.Sample(absl::StrCat("batch ", i));
//   }
//   log.WriteCsv("memory.csv");
//
// Each sample has a row per device of the ledger and one per owner asked for (the paths of
// MemorySnapshot::OwnersToString, with what is below them). Columns:
//
//   label             as given to Sample
//   seconds           since the log was made
//   resident_bytes    of the process, as the operating system counts: every kind of memory it has
//   device, owner     owner is empty for the whole device
//   allocated, ...    bytes now, one column per MemoryKind
//   total             their sum
//   peak              of a device: the most at once since the sample before; empty for owners
//
// For every change rather than chosen moments: MemoryTimeline.
// Threads: any. Cost: a snapshot of the ledger, a file read, and a row per device and owner.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LOG_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LOG_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"

namespace tidepool {

struct MemoryLogOptions {
  std::vector<std::string> owners;    // one the ledger does not know yet has no row
  size_t capacity = size_t{1} << 20;  // samples; the oldest make room for new ones
};

class MemoryLog {
 public:
  // Throws kInvalidArgument for a capacity of 0.
  explicit MemoryLog(MemoryLogOptions options = {});
  MemoryLog(const MemoryLog&) = delete;

  void Sample(std::string label);

  struct Row {
    Device device;
    std::string owner;
    std::array<int64_t, kMemoryKinds> bytes = {};
    int64_t total = 0;
    int64_t peak = 0;  // 0 for owners
  };
  struct Entry {
    std::string label;
    double seconds = 0;
    int64_t resident_bytes = 0;
    std::vector<Row> rows;
  };
  std::vector<Entry> entries() const;  // oldest first
  int64_t dropped() const;             // samples that made room for others

  // Labels and owners in quotes where CSV needs them (RFC 4180).
  std::string ToCsv() const;
  // The whole file or, on an error (AtomicFile's), nothing.
  void WriteCsv(const std::string& path) const;

 private:
  const MemoryLogOptions options_;
  const int64_t origin_;  // nanoseconds
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Entry> entries_;  // a ring once it is full
  int64_t sampled_ = 0;
  struct Peak {
    Device device;
    std::unique_ptr<PeakScope> scope;  // since the last sample
  };
  std::vector<Peak> peaks_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LOG_H_
