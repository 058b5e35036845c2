// Ranks that are threads, each with an emulated device, joined by an emulated NCCL: for tests.
#ifndef TIDEPOOL_NN_DISTRIBUTED_NCCL_TESTING_H_
#define TIDEPOOL_NN_DISTRIBUTED_NCCL_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/nccl_transport.h"
#include "tidepool/nn/distributed/thread_ranks.h"

namespace tidepool::nn {

inline constexpr int kMostRanks = 4;

// The one of TIDEPOOL_EMULATED_NCCL in the environment, set before anybody looks for it.
inline std::string SetUpTheMachine() {
  const char* const asked = std::getenv("TIDEPOOL_EMULATED_NCCL");
  const std::string kind = asked != nullptr ? asked : "";
  EmulatedCuda::Get().set_devices(kind == "no_device" ? 0 : kMostRanks);
  EmulatedNcclLibrary::Get().set_kind(kind == "absent"       ? EmulatedNccl::kAbsent
                                      : kind == "incomplete" ? EmulatedNccl::kIncomplete
                                      : kind == "too_old"    ? EmulatedNccl::kTooOld
                                                             : EmulatedNccl::kPresent);
  return kind;
}
inline Device OnDevice(int index) { return {DeviceType::kCuda, static_cast<uint8_t>(index)}; }

using Errors = std::vector<std::optional<Error>>;  // by rank

// What each rank's thread threw. Who fails ends the others' communicators, as a heartbeat does.
inline Errors OnRanks(
    int count, const std::function<void(Communicator&)>& body,
    const std::function<NcclConfig(int)>& config = [](int) { return NcclConfig(); }) {
  ThreadRanks ranks(count);
  Errors errors(static_cast<size_t>(count));
  std::mutex mutex;
  bool failed = false;
  std::vector<Communicator*> open;
  const auto run = [&](int rank) {
    std::unique_ptr<Communicator> communicator;
    try {
      communicator =
          std::make_unique<Communicator>([&] { return OpenNccl(ranks.Open(rank), config(rank)); });
      {
        const std::lock_guard<std::mutex> lock(mutex);
        open.push_back(communicator.get());
        if (failed) communicator->Abort(Error(absl::StatusCode::kAborted, "another has failed"));
      }
      body(*communicator);
    } catch (const Error& error) {
      errors[static_cast<size_t>(rank)] = error;
      const std::lock_guard<std::mutex> lock(mutex);
      failed = true;
      for (Communicator* const other : open)
        other->Abort(Error(absl::StatusCode::kAborted, "another has failed"));
    }
    const std::lock_guard<std::mutex> lock(mutex);
    std::erase(open, communicator.get());
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void ExpectNone(const Errors& errors) {
  for (const std::optional<Error>& error : errors)
    EXPECT_FALSE(error.has_value()) << error->message();
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_NCCL_TESTING_H_
