#include "tidepool/tools/commands/train_setup.h"

#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

ABSL_FLAG(double, learning_rate, 0, "0: that which suits the updater");
ABSL_FLAG(int, prefetch, 0, "batches made ahead on a thread of their own; 0: each in its step");
ABSL_FLAG(std::string, schedule, "cosine", "of the learning rate: cosine or constant");

namespace tidepool::tools {

nn::UpdaterConfig UpdaterOfFlags() {
  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::ParseUpdater(absl::GetFlag(FLAGS_updater)));
  const double rate = absl::GetFlag(FLAGS_learning_rate);
  if (!(rate >= 0) || std::isinf(rate)) {
    ThrowInvalidArgument(absl::StrCat("flag --learning_rate is ", rate,
                                      ", expected a finite number from 0 (the updater's own)"));
  }
  if (rate != 0) updater.learning_rate = rate;
  return updater;
}

nn::Schedule ScheduleOfFlags(int64_t steps) {
  const std::string schedule = absl::GetFlag(FLAGS_schedule);
  if (schedule != "cosine" && schedule != "constant") {
    ThrowInvalidArgument(
        absl::StrCat("flag --schedule is \"", schedule, "\", expected cosine or constant"));
  }
  return schedule == "cosine" ? nn::Schedule::Cosine(steps) : nn::Schedule::Constant();
}

int PrefetchOfFlags() {
  constexpr int kMost = 1024;
  const int prefetch = absl::GetFlag(FLAGS_prefetch);
  if (prefetch < 0 || prefetch > kMost) {
    ThrowInvalidArgument(
        absl::StrCat("flag --prefetch is ", prefetch, ", expected 0 (none) to ", kMost));
  }
  return prefetch;
}

nn::DataSetIterator& MadeAhead(nn::ImageBatches& batches, int prefetch, Device device,
                               std::optional<nn::AsyncDataSetIterator>& ahead) {
  if (prefetch == 0) return batches;
  const auto epoch = static_cast<int64_t>(batches.epoch());
  return ahead.emplace(
      batches, nn::AsyncOptions{.prefetch = prefetch, .device = device, .first_epoch = epoch});
}

void TellRefusedThreads() {
  const int wanted = ThreadCount();
  const std::shared_ptr<ThreadPool> pool = PoolOf(Threads(wanted));
  const int given = pool != nullptr ? pool->threads() : 1;
  if (given >= wanted) return;
  std::printf("%d threads of %d: the system refused more (ulimit -u, ulimit -s)\n", given, wanted);
}

}  // namespace tidepool::tools
