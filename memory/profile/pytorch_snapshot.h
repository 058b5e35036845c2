// Reads the memory snapshots of PyTorch as recordings, so that their pages can be had:
//
//   torch.cuda.memory._record_memory_history()
//   ... work ...
//   torch.cuda.memory._dump_snapshot("snapshot.pickle")
//
//   tidepool view --snapshot=snapshot.pickle --page=page.html
//
// or as records (docs/recording.md), which other allocators can be tried on:
//
//   tidepool advise snapshot.pickle
//
// The file is a pickle (pickle_reader.h: nothing in it is called) of a dictionary, as PyTorch documents it
// ("Understanding CUDA Memory Usage"). Read are: `segments` (`device`, `address`, `total_size`, `blocks` of `size`,
// `requested_size`, `state`, `address`, `frames`) and `device_traces`, by device a list of entries of `action` (alloc,
// free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap; others are counted), `addr`,
// `size`, `time_us` (else entries are a microsecond apart) and `frames` of `name`, `filename`, `line`. What else is there
// is not looked at.
//
// A device is one cycle of the whole recording, whose requests are its allocations and whose addresses are those of its
// segments one behind the other. What was alive before the trace begins, as it was freed in it or is in a block that was
// not allocated in it, is there from the start. What segments have beside it is "unreferenced".
//
// Errors are kDataLoss, with the byte's offset where the pickle is broken, else with the entry's number.
#ifndef TIDEPOOL_MEMORY_PROFILE_PYTORCH_SNAPSHOT_H_
#define TIDEPOOL_MEMORY_PROFILE_PYTORCH_SNAPSHOT_H_

#include <string>
#include <string_view>

#include "tidepool/memory/profile/profile_data.h"
#include "tidepool/memory/recording/record.h"

namespace tidepool {

// `bytes` of a snapshot's file; `what` stands for it in messages.
ProfileData ParsePyTorchSnapshot(std::string_view bytes, const std::string& what);

// Throws what FileReader throws too.
ProfileData ReadPyTorchSnapshot(const std::string& path);

// Its allocations as events: a device is a thread, whose entries are in their order; an owner is a stream and a function.
// Bytes are those of PyTorch's block where the snapshot does not say what was asked for (it does for blocks alive at its
// end), which are up to 511 more.
Record ParsePyTorchSnapshotAsRecord(std::string_view bytes, const std::string& what);
Record ReadPyTorchSnapshotAsRecord(const std::string& path);

// Whether a file begins as a pickle does. Throws what FileReader throws.
bool IsPyTorchSnapshot(const std::string& path);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_PYTORCH_SNAPSHOT_H_
