// Which calls of a tape keep which buffers, for who has these wait elsewhere (KeptArrayStore). Empty, and of no cost, until somebody asks.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_KEPT_ARRAYS_H_
#define TIDEPOOL_NDARRAY_GRADIENT_KEPT_ARRAYS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/tape_record.h"

namespace tidepool {

class KeptArrays {
 public:
  // As GradientTape has them.
  void Visit(const TapeRecords& records, absl::FunctionRef<void(const BufferHandle&)> visit);
  int HandlesOf(uint64_t buffer_id) const;
  bool Release(uint64_t buffer_id, int others, KeptArrayStore* store);

  // The view has its buffer again; the store is asked for it with the first of its views.
  void Bring(TapedView& view);
  // The record goes, with views that nobody wanted.
  void Forget(TapeRecord& record);
  void Clear();

 private:
  struct Kept {
    std::vector<TapedView*> views;  // of records, which stay where they are
    KeptArrayStore* store = nullptr;
    uint64_t buffer_id = 0;
    size_t left = 0;    // views that are away
    BufferHandle back;  // for those, once it was brought
  };
  void Leave(TapedView& view);

  const TapeRecord* visited_ = nullptr;            // the last one that was
  std::unordered_map<uint64_t, int32_t> numbers_;  // by id of the buffer
  std::vector<Kept> kept_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_KEPT_ARRAYS_H_
