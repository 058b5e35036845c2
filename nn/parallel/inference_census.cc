#include "tidepool/nn/parallel/inference_census.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/workspace/census.h"

namespace tidepool::nn {
namespace {

using internal::InferenceMember;
using InferenceCensus = tidepool::internal::Census<InferenceMember, InferenceGroup>;

constexpr size_t kEmptyRemembered = 1000;

// The least i whose 2^i is not below `value` (1 or more); the last one for what is larger.
size_t BucketOf(int64_t value, size_t buckets) {
  const auto least = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(value - 1)));
  return std::min(least, buckets - 1);
}

void AddGroups(const InferenceGroup& gone, InferenceGroup* sum) {
  AddInferenceCounters(gone.stats, sum->stats);
}

InferenceCensus& TheCensus() {
  static InferenceCensus* const census = [] {
    // What is registered later runs earlier before a fork: the handlers of memory/ are there by now.
    Reclaimer::Global();
    pthread_atfork(
        [] {
          TellBeforeFork();
          TheCensus().LockForFork();
        },
        [] { TheCensus().UnlockAfterFork(); }, [] { TheCensus().UnlockAfterFork(); });
    return new InferenceCensus(
        [](InferenceMember& member, bool is_alive, InferenceGroup* group) {
          member.AddTo(is_alive, *group);
        },
        &AddGroups, kEmptyRemembered,
        {[](InferenceMember& member) { member.LockForFork(); },
         [](InferenceMember& member) { member.UnlockAfterFork(); }});  // outlives static services
  }();
  return *census;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const InferenceCensus& at_start = TheCensus();

}  // namespace

void AddInferenceCounters(const ParallelInferenceStats& from, ParallelInferenceStats& to) {
  for (const auto field :
       {&ParallelInferenceStats::requests, &ParallelInferenceStats::examples,
        &ParallelInferenceStats::batches, &ParallelInferenceStats::batch_examples,
        &ParallelInferenceStats::nanoseconds, &ParallelInferenceStats::failed,
        &ParallelInferenceStats::refused, &ParallelInferenceStats::expired}) {
    to.*field += from.*field;
  }
  to.largest_batch = std::max(to.largest_batch, from.largest_batch);
  for (size_t i = 0; i < to.batches_by_size.size(); ++i)
    to.batches_by_size[i] += from.batches_by_size[i];
  for (size_t i = 0; i < to.requests_by_time.size(); ++i)
    to.requests_by_time[i] += from.requests_by_time[i];
}

std::vector<InferenceGroup> ReadInferences() { return TheCensus().Read(); }

namespace internal {

void CountBatch(ParallelInferenceStats& stats, int64_t requests, int64_t examples) {
  stats.running += requests;
  ++stats.batches;
  stats.batch_examples += examples;
  stats.largest_batch = std::max(stats.largest_batch, examples);
  ++stats.batches_by_size[BucketOf(examples, stats.batches_by_size.size())];
}

void CountAnswer(ParallelInferenceStats& stats, int64_t examples, std::chrono::nanoseconds time) {
  ++stats.requests;
  stats.examples += examples;
  const int64_t microseconds = std::max<int64_t>(1, (time.count() + 999) / 1000);
  ++stats.requests_by_time[BucketOf(microseconds, stats.requests_by_time.size())];
  stats.nanoseconds += time.count();
}

InferenceMember::InferenceMember(std::string name, Device device)
    : name_(std::move(name)), device_(device) {}

void InferenceMember::Join() {
  TheCensus().Join(this, name_, device_);
  has_joined_ = true;
}

void InferenceMember::Leave() noexcept {
  if (has_joined_) TheCensus().Leave(this, name_, device_);
  has_joined_ = false;
}

}  // namespace internal

}  // namespace tidepool::nn
