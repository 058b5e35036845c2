// What a tape has seen, the last thing first: calls of operators, arrays that are watched, functions, segments.
//
// A record lies with its views and attributes in one piece of a chunk, so that one costs no allocation; chunks are heap
// buffers on the ledger. Nothing virtual: most are calls.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORD_H_
#define TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/gradient/destinations.h"
#include "tidepool/ndarray/gradient/places.h"
#include "tidepool/ndarray/gradient/taped_view.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/gradient_plan.h"

namespace tidepool {

// An array that gradients are wanted of.
struct WatchedArray {
  uint64_t buffer_id = 0;
  FreeView view;
  Places where;              // which is looked for with each gradient
  bool is_computed = false;  // on the tape: its gradient flows on to what it was computed from
  Destination destination;   // of its gradient
  // Of that, when Watch() saw it last; 0: none was handed in.
  uint64_t destination_buffer_id = 0;
  FreeView destination_view;
  bool adds = false;                  // to it
  int number = 0;                     // in the order of Watch()
  bool is_used = false;               // a record has it among its `watched`
  bool is_final = false;              // its gradient was found in the pass under way
  WatchedArray* next_used = nullptr;  // of the same record
  NDArray gradient;                   // what was found; undefined: none
};

// What a segment read beside its inputs and what it made itself.
struct SegmentRead {
  uint64_t buffer_id;
  uint32_t version;
  FreeView view;  // without the buffer, which a segment does not keep
  std::string op;
  bool unrecorded = false;  // in a NoGradientScope
  Places shared = {};       // by addresses, where other buffers may have its memory; else nowhere
};

// What a record of few kinds has beside a call's.
struct TapeExtra {
  std::string name;  // of a function or segment
  CallRecorder::Backward backward;
  std::function<std::vector<NDArray>(absl::Span<const NDArray>)> segment;
  std::vector<SegmentRead> reads;         // of its first run
  size_t writes_before = 0;               // that the tape had noted by the end of that
  std::unique_ptr<AllocationTrace> site;  // of a call, if MemoryTracing was on
  std::unique_ptr<TapeExtra> next;        // of those that wait to be used again

  // Nothing is left but the memory of names and lists.
  void Clear() {
    name.clear();
    backward = {};
    segment = nullptr;
    reads.clear();
    writes_before = 0;
    site.reset();
  }
};

struct TapeRecord {
  enum class Kind : uint8_t { kCall, kWatch, kFunction, kSegment };
  static constexpr size_t kMostViews = UINT16_MAX;  // of each sort

  TapeRecord* previous = nullptr;
  const GradientPlan* plan = nullptr;  // of a call; null: of no input, only of what it wrote to
  std::unique_ptr<TapeExtra> extra;    // null where none of it is needed
  // Of kWatch that one; of others the arrays whose gradients are final behind it, as it is the first that reads them.
  WatchedArray* watched = nullptr;
  int part = 0;                      // of the program
  OperandSet wanted = 0, needs = 0;  // of which inputs gradients are wanted, and what they read
  OpCode op = OpCode::kAdd;
  Kind kind = Kind::kCall;
  EarlierValues earlier = EarlierValues::kAreOverwritten;  // of the outputs
  bool relu_before = false;  // of a pooling: its input ends with a ReLU, whose gradient it applies
  uint8_t view_bytes = sizeof(TapedView);  // with the axes that it has room for
  uint16_t input_count = 0, output_count = 0;
  uint16_t kept_count = 0;           // of what a function has told that it keeps
  const void* attributes = nullptr;  // null: of none

  // Inputs, outputs, what is kept, which lie right behind it.
  std::byte* first_view() { return reinterpret_cast<std::byte*>(this + 1); }
  TapedView& view(int v) { return *reinterpret_cast<TapedView*>(first_view() + v * view_bytes); }
  const TapedView& view(int v) const { return const_cast<TapeRecord*>(this)->view(v); }
  TapedView& output(int o) { return view(input_count + o); }
  TapedView& kept(int k) { return view(input_count + output_count + k); }
  int view_count() const { return input_count + output_count + kept_count; }
  const char* name() const {
    return kind == Kind::kCall    ? Info(op).name
           : kind == Kind::kWatch ? "watch"
                                  : extra->name.c_str();
  }
  // What the view of that number is to the record, for people.
  std::string OperandText(int view) const;
};

static_assert(sizeof(TapeRecord) == 64);

// Records in the order they were made, of which the last ones go first.
class TapeRecords {
 public:
  TapeRecords() = default;
  TapeRecords(const TapeRecords&) = delete;
  TapeRecords& operator=(const TapeRecords&) = delete;
  ~TapeRecords();

  // A record with that many views, absent ones, each of which has room for `rank` axes, and a copy of the attributes. It is none
  // before Commit; one that is never committed is forgotten by the next New. Throws OutOfMemoryError.
  TapeRecord* New(int inputs, int outputs, int rank, const void* attributes, size_t attribute_bytes,
                  int kept = 0);
  // The same with room for so many views and none yet: who makes them from first_view() on counts them in the record.
  TapeRecord* NewWithoutViews(int views, int rank, const void* attributes, size_t attribute_bytes) {
    if (pending_ != nullptr) [[unlikely]]
      ForgetPending();
    const size_t view_bytes = sizeof(TapedView) + static_cast<size_t>(2 * rank) * sizeof(int64_t);
    const size_t head = sizeof(TapeRecord) + static_cast<size_t>(views) * view_bytes;
    const size_t bytes = head + RoundUp(attribute_bytes);
    if (static_cast<size_t>(end_ - next_) < bytes) [[unlikely]]
      EnterChunkFor(bytes);
    std::byte* const at = next_;
    next_ = at + bytes;
    pending_ = new (at) TapeRecord();
    pending_->view_bytes = static_cast<uint8_t>(view_bytes);
    if (attribute_bytes > 0) {
      std::memcpy(at + head, attributes, attribute_bytes);
      pending_->attributes = at + head;
    }
    return pending_;
  }
  void Commit(TapeRecord* record) {
    record->previous = last_;
    record->part = part_;
    last_ = record;
    pending_ = nullptr;
    ++count_;
  }
  // For a record of this, which it comes back from when that goes.
  std::unique_ptr<TapeExtra> NewExtra();
  // Of records that are committed from here on.
  void set_part(int part) { part_ = part; }
  int part() const { return part_; }
  TapeRecord* last() const { return last_; }
  // The last one.
  void Drop();
  // All of them. Their memory stays for those to come: what has been recorded once takes none again, so that what a step with a kept
  // tape takes is what its first one took.
  void Clear();
  // From here on what it takes is its own and ends with it, for a tape that is kept from step to step; else chunks come from, and go
  // to, other tapes (spare_chunks.h).
  void KeepOwnMemory() { is_kept_ = true; }
  int64_t count() const { return count_; }

 private:
  struct Chunk {
    BufferHandle buffer;
    bool is_of_process = false;  // not of another owner's memory
  };
  static constexpr size_t kAlignment = alignof(std::max_align_t);
  static_assert(sizeof(TapedView) % kAlignment == 0 && sizeof(TapeRecord) % kAlignment == 0);
  static constexpr size_t RoundUp(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  void Destroy(TapeRecord* record);
  void ForgetPending();
  // The last one in use is one that has so many bytes left.
  void EnterChunkFor(size_t bytes);
  // The last one in use is written from that byte on; null: from its begin.
  void WriteFrom(std::byte* at);
  // What lies behind that byte is gone.
  void GoBackTo(std::byte* at);
  Chunk NewChunk(size_t bytes) const;

  std::vector<Chunk> chunks_;
  size_t in_use_ = 0;  // the first ones, which have records; the others are empty
  // Of the last one of these: what is written, and what is left.
  std::byte *begin_ = nullptr, *next_ = nullptr, *end_ = nullptr;
  std::unique_ptr<TapeExtra> spare_extra_;
  TapeRecord* last_ = nullptr;
  TapeRecord* pending_ = nullptr;
  int64_t count_ = 0;
  int part_ = 0;
  bool is_kept_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORD_H_
