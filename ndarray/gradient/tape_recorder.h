// What a GradientTape does: while it records, and backwards.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORDER_H_
#define TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/gradient/destinations.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/kept_arrays.h"
#include "tidepool/ndarray/gradient/shadow_memory.h"
#include "tidepool/ndarray/gradient/slot_table.h"
#include "tidepool/ndarray/gradient/tape_record.h"
#include "tidepool/ndarray/gradient/write_log.h"
#include "tidepool/ndarray/ops/gradient_task.h"

namespace tidepool {

class GradientTape::Recorder final : public CallRecorder {
 public:
  Recorder();
  ~Recorder();
  void Restart();
  void Clear();

  // CallRecorder:
  void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
           AttributesRef attributes) override;
  void NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                    absl::Span<const NDArray> outputs, Backward backward) override;
  bool Follows(absl::Span<const NDArray> inputs) const override;
  std::vector<NDArray> RunSegment(
      std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
      absl::Span<const NDArray> inputs) override;
  // Writes are noted there as well: what they leave alone is what it was.
  CallRecorder* InUnrecordedScope() override;
  CallRecorder* OwnInUnrecordedScope() override { return &unrecorded_; }

  void Watch(const NDArray& x, const NDArray& gradient, GradientWrite write);
  // `seeded`: called once both have been read.
  void RunBackward(
      absl::Span<const NDArray> outputs, absl::Span<const NDArray> output_gradients, bool keep,
      absl::FunctionRef<void()> seeded = [] {});
  NDArray Gradient(const NDArray& x) const;
  void Stop();
  void set_part(int part) { records_.set_part(part); }
  void set_placement(BackwardPlacement* placement) { placement_ = placement; }
  void set_listener(GradientListener* listener);
  bool is_recording() const { return state_ == State::kRecording; }
  void VisitKept(absl::FunctionRef<void(const BufferHandle&)> visit);
  void VisitRemakeable(int part, absl::FunctionRef<bool(const BufferHandle&)> goes);
  KeptArrays& kept() { return kept_; }
  int64_t calls() const { return calls_; }
  std::vector<SavedArray> Saved() const;

 private:
  class SegmentRun;
  // Calls in a NoGradientScope: their writes are noted.
  class Unrecorded final : public CallRecorder {
   public:
    explicit Unrecorded(Recorder& tape) : tape_(tape) {}
    void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
             AttributesRef attributes) override;
    void NoteFunction(const char*, absl::Span<const NDArray>, absl::Span<const NDArray>,
                      Backward) override {}
    bool Follows(absl::Span<const NDArray>) const override { return false; }
    std::vector<NDArray> RunSegment(
        std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
        absl::Span<const NDArray> inputs) override {
      return function(inputs);
    }
    CallRecorder* InUnrecordedScope() override { return this; }

   private:
    Recorder& tape_;
  };
  // Calls in Backward(), whose writes are noted. Those outside see the calls behind this.
  class InBackward final : public CallRecorder {
   public:
    InBackward(Recorder& tape, InBackward* in_unrecorded_scope)
        : tape_(tape),
          in_unrecorded_scope_(in_unrecorded_scope != nullptr ? in_unrecorded_scope : this),
          records_(in_unrecorded_scope != nullptr) {}
    void set_frame(const RecorderFrame& frame) { frame_ = in_unrecorded_scope_->frame_ = &frame; }
    void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
             AttributesRef attributes) override;
    void NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                      absl::Span<const NDArray> outputs, Backward backward) override;
    bool Follows(absl::Span<const NDArray> inputs) const override;
    std::vector<NDArray> RunSegment(
        std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
        absl::Span<const NDArray> inputs) override;
    CallRecorder* InUnrecordedScope() override { return in_unrecorded_scope_; }
    bool IsRecordedOutside() const;

   private:
    Recorder& tape_;
    InBackward* const in_unrecorded_scope_;
    const bool records_;  // else it is of a NoGradientScope
    const RecorderFrame* frame_ = nullptr;
  };
  enum class State : uint8_t { kRecording, kStopped, kBackward, kKept, kDone, kFailed };

  void CheckThread(const char* what) const;
  // That neither Backward() nor the first run of a segment is under way.
  void CheckIdle(const char* what) const;
  // The slot of its buffer, if it has one.
  uint32_t SlotOf(const NDArray& array) const {
    const Buffer* const buffer = array.buffer().get();
    return buffer != nullptr ? slots_.Find(buffer->id, array.dtype()) : TapedView::kNoSlot;
  }
  // Whether something watched flows to the view.
  bool Flows(const TapedView& view) const {
    return view.slot != TapedView::kNoSlot && IsFloating(view.dtype) &&
           (slots_[view.slot].computed != 0 || MeetsWatched(view));
  }
  bool MeetsWatched(const TapedView& view) const;
  // The same of an array of that slot.
  bool MeetsWatched(const NDArray& array, uint32_t slot) const;
  bool FlowsToOne(absl::Span<const NDArray> inputs) const;
  WatchedArray* FindWatched(const TapedView& view) const;
  // An array that was watched at this place in the order before Restart(), with the same gradient, and so were all before it: checks
  // would find what they found then. False: it was not, and nothing has happened.
  bool WatchAgain(const NDArray& x, const NDArray& gradient, GradientWrite write);
  // The first of `watched_` that is not in use becomes a watched array of that slot, on the tape.
  void AddWatched(const NDArray& gradient, uint32_t slot);
  // That no other watched array has its gradient there.
  void CheckDestination(const Destination& of_gradient);
  void ForgetAll();
  // Of its buffer.
  int64_t ElementsOf(const TapedView& view) const {
    return ElementsIn(slots_[view.slot].bytes, view.dtype);
  }
  // A call that nothing flows to, nor to what it writes to.
  void RunAside(OpCode op, absl::Span<const NDArray* const> inputs,
                absl::Span<NDArray* const> outputs, AttributesRef attributes,
                EarlierValues earlier);
  static void CheckOverwrites(OpCode op, OperandSet needs, absl::Span<const NDArray* const> inputs,
                              absl::Span<NDArray* const> outputs);
  [[noreturn]] static void ThrowOverwrites(OpCode op, int input);
  void NoteSite(TapeRecord& record);
  // Only what was written to before, or has several addresses, can be kept by anybody.
  void NoteWrites(const char* op, absl::Span<NDArray* const> outputs, bool in_backward = false) {
    for (const NDArray* const output : outputs) {
      const Buffer* const buffer = output->buffer().get();
      if (buffer == nullptr) continue;
      const bool is_shared = buffer->MayBeWrittenOutside();
      if (buffer->version.load(std::memory_order_relaxed) > 1 || is_shared)
        NoteWrite(op, *output, is_shared, in_backward);
    }
  }
  void NoteWrite(const char* op, const NDArray& output, bool is_shared, bool in_backward);
  // Whether a tape records what is called here.
  static bool IsRecordedHere();
  // Whether Backward() may write to something that is kept until it has come by: gradients are handed in that may lie in the same buffer, or
  // others' code is called. Buffers are told apart by a bit of their number's hash, so some are taken for others.
  bool MayWriteOverKept() const {
    if (listener_ != nullptr) return !listener_->MovesMemory();
    return has_functions_ || MayLieOverKept();
  }
  // Whether a gradient that was handed in may lie in a buffer of which something is kept.
  bool MayLieOverKept() const { return (kept_bits_ & destination_bits_) != 0; }
  static uint64_t BitOf(const Buffer& buffer) {
    return uint64_t{1} << (buffer.id * 0x9E3779B97F4A7C15u >> 58);
  }
  // With the buffer; of one that others may write to, whose version tells nothing, with the number of writes so far instead.
  void Keep(TapedView& view, const NDArray& array) {
    view.Keep(array);
    NoteKept(view);
  }
  void NoteKept(TapedView& view) {
    if (!view.buffer) return;
    kept_bits_ |= BitOf(*view.buffer.get());
    if (view.guarded) [[likely]]
      return;
    view.version = static_cast<uint32_t>(writes_.size());
    kept_bits_ = ~uint64_t{0};  // other buffers may have its memory
  }
  static int64_t AddressOf(const Buffer& buffer) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(buffer.data));
  }
  // Of a record, at `at`; kept as by Keep(). In line, as there are three for each call.
  [[gnu::always_inline]] TapedView& AddView(std::byte* at, const NDArray& array, uint32_t slot,
                                            bool keep) {
    TapedView& view = *new (at) TapedView(array, slot, keep);
    if (keep) NoteKept(view);
    return view;
  }
  // The writes of this thread's operators to memory that other buffers may have too.
  void CheckSharedUnchanged(const TapeRecord& record, const TapedView& view, int operand) const;
  // The record is the first that reads or writes what is watched of the view's elements, or of all: for the listener.
  void NoteUse(TapeRecord* record, const TapedView& view);
  void NoteUseOfAll(TapeRecord* record);
  void NoteUses(TapeRecord* record) {
    if (listener_ != nullptr) [[unlikely]]
      NoteUsesToTell(record);
  }
  void NoteUsesToTell(TapeRecord* record);
  // Of a function or segment: that a record has room for so many.
  static void CheckViews(const char* name, const char* what, size_t count);
  // A record of a function or segment without outputs yet; null where nothing flows to it.
  TapeRecord* NewRecord(TapeRecord::Kind kind, const char* name, absl::Span<const NDArray> inputs,
                        int outputs, bool keep_inputs, int kept = 0);
  void CommitFunction(TapeRecord* record, absl::Span<const NDArray> outputs);

  void Seed(absl::Span<const NDArray> outputs, absl::Span<const NDArray> output_gradients);
  void BackTo(const TapeRecord* stop, bool keep);
  // Tells the placement where the next record's results go.
  void PlaceResultsOf(const TapeRecord& record);
  void BackThroughCall(TapeRecord& record, bool keep);
  // The gradient of what a call's results held, where the call made something else of it than to add to it.
  void BackToEarlierValues(TapeRecord& record, bool keep);
  void ReleaseBeforeRelu(TapeRecord& pooling);
  // `watched`: of each input, where one is wanted of it.
  void FillTask(TapeRecord& record, bool keep, WatchedArray* const* watched);
  // Where inputs of a call with gradient operators make up one buffer that has no gradient yet, that gradient is made as a whole
  // and `task_` is told that each input's lies in its part: nothing is cleared and added. Undefined: they do not. What the task
  // puts elsewhere TakeParts brings there.
  NDArray PlaceParts(const TapeRecord& record);
  void TakeParts(const TapeRecord& record, NDArray whole);
  void BackThroughFunction(TapeRecord& record, bool keep);
  void BackThroughSegment(TapeRecord& record, bool keep);
  // Of what the segment read in its first run beside its inputs.
  void CheckReadsUnchanged(const TapeRecord& record) const;
  void FinishWatched(WatchedArray& watched);
  void SeparateResults();
  // The kept operand; its handle goes with it unless `keep`.
  NDArray Recalled(const TapeRecord& record, TapedView& view, bool keep, int operand);
  void CheckUnchanged(const TapeRecord& record, const TapedView& view, int operand) const;
  absl::InlinedVector<NDArray, 2> TakeGradients(TapeRecord& record, bool* any);

  Unrecorded unrecorded_{*this};
  InBackward in_unrecorded_backward_{*this, nullptr}, in_backward_{*this, &in_unrecorded_backward_};
  RecorderFrame frame_{this};
  const void* thread_;
  State state_ = State::kRecording;
  bool is_recorded_ = false;  // Backward() that is under way, by a tape around this one
  int running_segments_ = 0;  // for the first time, one in the other
  int64_t calls_ = 0;
  SlotTable slots_;
  // The first ones of `watched_`; the others are kept for arrays to come.
  absl::Span<const std::unique_ptr<WatchedArray>> Watched() const {
    return absl::MakeConstSpan(watched_).subspan(0, watched_count_);
  }
  std::vector<std::unique_ptr<WatchedArray>> watched_;
  size_t watched_count_ = 0;
  // How many of them were watched together before Restart(), from the first on, which Watch() has met again one by one so far.
  size_t watched_before_ = 0;
  bool destinations_checked_ = true;  // of all of them: none shares memory with another
  Destinations destinations_;         // of those
  TapeRecords records_;
  ShadowMemory shadows_;
  GradientTask task_;
  WriteLog writes_;                                // to what may be kept
  uint64_t kept_bits_ = 0, destination_bits_ = 0;  // of buffers that are kept, and of gradients
  bool has_functions_ = false;                     // were recorded
  KeptArrays kept_;
  BackwardPlacement* placement_ = nullptr;
  GradientListener* listener_ = nullptr;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_TAPE_RECORDER_H_
