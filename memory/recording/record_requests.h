// Records what this program asks of Tidepool's memory: arrays and other buffers of workspaces and of
// the heap, with sizes, owners, kinds, devices and threads, and the cycles they are asked for in.
//
//   StartRecording("trace.rec");
//   ... some cycles ...
//   StopRecording();                  // tidepool replay trace.rec; docs/recording.md
//
// Or without touching the program: TIDEPOOL_RECORD=trace.rec in its environment records all of it, in
// every program that links //memory/workspace. Where that file is being written by another process,
// and in a child that fork() makes, the record is trace.rec.<process>.
//
// Cycles that begin while it runs are recorded whole, by the long way of each request; of cycles that
// are open already at most what misses. What was there before is told as sums by owner and kind.
// Blocks of containers and raw bytes (memory/pmr), imported memory, and what the runtime takes for
// itself are not recorded.
//
// Threads: any. Cost: an event some tens of nanoseconds and ten bytes of the file, a request of a
// cycle the long way besides; 64 KiB for each thread. Off: nothing on the way of a request that a plan
// serves, a load for one of the heap.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_REQUESTS_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_REQUESTS_H_

#include <string>

namespace tidepool {

// Throws from errno with the path; kFailedPrecondition while a record is being written.
void StartRecording(const std::string& path);
// Ends it, whoever began it. Events that other threads make meanwhile may be missing.
void StopRecording() noexcept;

// Whether a record is being written, by whomever.
bool IsRecording() noexcept;
// Where the record is that is being written; empty without one.
std::string RecordingPath();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_REQUESTS_H_
