// Segments that are computed again: what they read and write in their first run, and their second one.
#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

std::string Described(const TapedView& view) {
  return absl::StrCat(DTypeName(view.dtype), " ", view.shape().ToString());
}
std::string Described(const NDArray& array) { return Described(FreeView(array)); }

}  // namespace

// Sees the calls of a segment's first run, of which nothing is recorded: what it reads must be the same when it runs again.
class GradientTape::Recorder::SegmentRun final : public CallRecorder {
 public:
  explicit SegmentRun(Recorder& tape) : tape_(tape) {}

  // In which it is current. Those outside of it, the first run of the same segment for the tape around this one's, see the calls
  // behind this one.
  void set_frame(const RecorderFrame& frame) { frame_ = &frame; }

  void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
           AttributesRef attributes) override {
    See(op, inputs, outputs, attributes, Beyond(), /*unrecorded=*/false);
  }
  void NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                    absl::Span<const NDArray> outputs, Backward backward) override {
    for (const NDArray& input : inputs) {
      if (input.is_defined()) NoteRead(name, input, /*unrecorded=*/false);
    }
    const RecorderFrame::OutsideOf outside(*frame_);
    if (CallRecorder* const beyond = CallRecorder::Current())
      beyond->NoteFunction(name, inputs, outputs, std::move(backward));
  }
  std::vector<NDArray> RunSegment(
      std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
      absl::Span<const NDArray> inputs) override {
    return function(inputs);
  }
  CallRecorder* InUnrecordedScope() override { return &unrecorded_; }
  bool flows() const { return flows_; }  // something watched, to what it has read

  // What must be unchanged in Backward(). Throws where the segment itself has changed it.
  std::vector<SegmentRead> TakeReads(absl::Span<const NDArray> inputs,
                                     absl::Span<const NDArray> outputs) {
    std::vector<SegmentRead> kept;
    kept.reserve(reads_.size());
    for (SegmentRead& read : reads_) {
      const Places where(read.view);
      const WriteLog::Write* captured = nullptr;
      bool moved_on = false;
      own_writes_.VisitBackwards(read.buffer_id, [&](size_t, const WriteLog::Write& write) {
        if (!write.where.MayOverlap(where)) return true;
        // State that it moves on, an average say, is computed from what it was.
        moved_on = moved_on || (read.unrecorded && write.IsLaterThan(read.version));
        if (captured == nullptr && IsCaptured(write.buffer_id, inputs, outputs)) captured = &write;
        return true;
      });
      if (moved_on) continue;
      if (captured != nullptr) {
        ThrowInvalidArgument(absl::StrCat("Op [", read.op, "] in a segment reads ",
                                          Described(read.view), ", which Op [", captured->op,
                                          "] in the segment overwrites and would overwrite again "
                                          "in Backward(); expected a result "
                                          "of its own (x = f(x) instead of in place)"));
      }
      kept.push_back(std::move(read));
    }
    return kept;
  }

 private:
  // The calls in a NoGradientScope within it.
  class Unrecorded final : public CallRecorder {
   public:
    explicit Unrecorded(SegmentRun& run) : run_(run) {}
    void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
             AttributesRef attributes) override {
      run_.See(op, inputs, outputs, attributes, BeyondWithout(), /*unrecorded=*/true);
    }
    void NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                      absl::Span<const NDArray> outputs, Backward backward) override {
      for (const NDArray& input : inputs) {
        if (input.is_defined()) run_.NoteRead(name, input, /*unrecorded=*/true);
      }
      const RecorderFrame::OutsideOf outside(*run_.frame_);
      if (CallRecorder* const beyond = BeyondWithout())
        beyond->NoteFunction(name, inputs, outputs, std::move(backward));
    }
    std::vector<NDArray> RunSegment(
        std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
        absl::Span<const NDArray> inputs) override {
      return function(inputs);
    }
    CallRecorder* InUnrecordedScope() override { return this; }

   private:
    CallRecorder* BeyondWithout() const {
      CallRecorder* const beyond = run_.Beyond();
      return beyond != nullptr ? beyond->InUnrecordedScope() : nullptr;
    }

    SegmentRun& run_;
  };
  CallRecorder* Beyond() const {
    const RecorderFrame::OutsideOf outside(*frame_);
    return CallRecorder::Current();
  }
  void See(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
           AttributesRef attributes, CallRecorder* beyond, bool unrecorded) {
    const RecorderFrame::Only only(beyond);
    for (const NDArray* const output : outputs) {
      if (output != nullptr) CheckWrite(op, *output);
    }
    for (const NDArray* const input : inputs) {
      // What an update in place is made from is no value that something else is computed from.
      if (input != nullptr && !IsOneOf(*input, outputs))
        NoteRead(Info(op).name, *input, unrecorded);
    }
    Dispatch(op, inputs, outputs, attributes);
    tape_.NoteWrites(Info(op).name, outputs);
    for (const NDArray* const output : outputs) {
      const Buffer* const buffer = output != nullptr ? output->buffer().get() : nullptr;
      if (buffer == nullptr) continue;
      const uint32_t version = buffer->version.load(std::memory_order_relaxed);
      Seen& seen = seen_[buffer->id];
      if (version <= 1 && !IsOlder(buffer->id)) seen.is_made = true;
      if (seen.is_made) continue;
      const FreeView view(*output);
      own_writes_.Add({buffer->id, version, Places(view), Info(op).name, nullptr});
      if (!view.IsDense() || AddsToResult(op, attributes.data()) || Info(op).updates()) continue;
      if (!IsIn(*buffer, inputs)) seen.Compute(BytesOf(view));
    }
  }
  static std::pair<int64_t, int64_t> BytesOf(const TapedView& view) {
    const Places where(view);
    return {where.begin(), where.end()};
  }
  static bool IsIn(const Buffer& buffer, absl::Span<const NDArray* const> arrays) {
    return std::any_of(arrays.begin(), arrays.end(), [&](const NDArray* array) {
      return array != nullptr && array->buffer().get() == &buffer;
    });
  }
  static bool IsOneOf(const NDArray& input, absl::Span<NDArray* const> outputs) {
    for (const NDArray* const output : outputs) {
      if (output != nullptr && output->buffer().get() == input.buffer().get() &&
          FreeView(*output).IsSame(FreeView(input))) {
        return true;
      }
    }
    return false;
  }
  void NoteRead(const char* op, const NDArray& array, bool unrecorded) {
    Buffer* const buffer = array.buffer().get();
    if (buffer == nullptr) return;
    const FreeView view(array);
    Seen& seen = seen_[buffer->id];
    if (seen.is_made || seen.HasComputed(BytesOf(view))) return;
    const uint32_t version = VersionToKeep(*buffer);
    if (seen.last_read != Seen::kNone) {
      // Parameters are read at each place of a sequence.
      const SegmentRead& read = reads_[seen.last_read];
      if (read.version == version && read.unrecorded == unrecorded && read.view.IsSame(view))
        return;
    }
    flows_ = flows_ || (!unrecorded && tape_.FlowsToOne({&array, 1}));
    seen.last_read = reads_.size();
    reads_.push_back(
        {buffer->id, version, view, op, unrecorded,
         buffer->MayBeWrittenOutside() ? Places(view).Shifted(AddressOf(*buffer)) : Places()});
  }
  // Whether it is sure to have been there before the segment. A thread takes numbers of buffers in blocks, in order; of what
  // workspaces and other threads have made the order is not known.
  bool IsOlder(uint64_t buffer_id) const {
    const auto block = [](uint64_t id) { return (id - 1) / kBufferIdsAtOnce; };
    return buffer_id < first_id_ && block(buffer_id) == block(first_id_);
  }
  // And is not one of its inputs, whose versions tell.
  bool IsCaptured(uint64_t buffer_id, absl::Span<const NDArray> inputs,
                  absl::Span<const NDArray> outputs) const {
    if (!IsOlder(buffer_id)) return false;
    for (const auto& arrays : {inputs, outputs}) {
      for (const NDArray& array : arrays) {
        if (array.is_defined() && array.buffer().get() != nullptr &&
            array.buffer()->id == buffer_id)
          return false;
      }
    }
    return true;
  }
  // What the tape recorded before has a gradient by the value it had.
  void CheckWrite(OpCode op, const NDArray& output) const {
    FreeView view(output);
    view.slot = tape_.SlotOf(output);
    if (!tape_.Flows(view)) return;
    ThrowInvalidArgument(absl::StrCat(
        "Op [", Info(op).name, "] in a segment overwrites ", Described(output),
        ", which the gradient tape watches or has recorded and the segment would overwrite again "
        "in Backward(); expected a result of its own (x = f(x) instead of in place)"));
  }

  Recorder& tape_;
  const RecorderFrame* frame_ = nullptr;
  Unrecorded unrecorded_{*this};
  const uint64_t first_id_ = NextBufferId();
  // What a buffer was used for.
  struct Seen {
    static constexpr size_t kNone = SIZE_MAX;
    bool is_made = false;      // in the segment, where nobody else writes to it
    size_t last_read = kNone;  // in reads_
    // Bytes, one behind the other, that the segment has computed from others: whatever becomes of them meanwhile, it computes
    // them again before it reads them. Buffers of planned memory are there before the segment that uses them.
    int64_t begin = 0, end = 0;

    void Compute(std::pair<int64_t, int64_t> bytes) {
      if (bytes.first > end || begin > bytes.second) {
        std::tie(begin, end) = bytes;
      } else {
        begin = std::min(begin, bytes.first);
        end = std::max(end, bytes.second);
      }
    }
    bool HasComputed(std::pair<int64_t, int64_t> bytes) const {
      return begin <= bytes.first && bytes.second <= end;
    }
  };
  // By buffer. Of std, whose insertions that throw leave it as it was; Abseil's of 2022 is broken by a refused allocation.
  std::unordered_map<uint64_t, Seen> seen_;
  std::vector<SegmentRead> reads_;
  bool flows_ = false;
  // To what no operator in the segment has made. By number: a handle would hold the memory of what is made otherwise to
  // the segment's end.
  WriteLog own_writes_;
};

std::vector<NDArray> GradientTape::Recorder::RunSegment(
    std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
    absl::Span<const NDArray> inputs) {
  CheckViews("segment", "inputs", inputs.size());
  ++running_segments_;
  const absl::Cleanup over = [this] { --running_segments_; };
  std::vector<uint32_t> versions;
  for (const NDArray& input : inputs) {
    Buffer* const buffer = input.is_defined() ? input.buffer().get() : nullptr;
    versions.push_back(buffer != nullptr ? VersionToKeep(*buffer) : 0);
  }
  std::vector<NDArray> outputs;
  std::vector<SegmentRead> reads;
  {
    const RecorderFrame::OutsideOf outside(frame_);
    SegmentRun run(*this);
    if (CallRecorder* const outer = CallRecorder::Current()) {
      // Each tape looks at the first run for itself; the outer one keeps the function, and calls it again without this look.
      const auto first = std::make_shared<SegmentRun*>(&run);
      const absl::Cleanup forget = [&] { *first = nullptr; };
      outputs = outer->RunSegment(
          [function, first](absl::Span<const NDArray> of) {
            SegmentRun* const seen = std::exchange(*first, nullptr);
            if (seen == nullptr) return function(of);
            const RecorderFrame::Only only(seen);
            seen->set_frame(only.frame());
            return function(of);
          },
          inputs);
    } else {
      const RecorderFrame::Only only(&run);
      run.set_frame(only.frame());
      outputs = function(inputs);
    }
    reads = run.TakeReads(inputs, outputs);
    // A place for each of its elements: the gradient of an element that is named more than once cannot be told apart again.
    for (NDArray& output : outputs) {
      if (output.is_defined() && IsFloating(output.dtype()) && MayRepeat(output))
        output = output.Dup();
    }
    if (!run.flows() && !FlowsToOne(inputs) && !FlowsToOne(outputs)) return outputs;
  }
  CheckViews("segment", "outputs", outputs.size());
  TapeRecord* const record = NewRecord(TapeRecord::Kind::kSegment, "segment", inputs,
                                       static_cast<int>(outputs.size()), /*keep_inputs=*/true);
  // It is computed again from what they were when it began.
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (record->view(i).guarded) record->view(i).version = versions[i];
  }
  record->extra->segment = std::move(function);
  record->extra->reads = std::move(reads);
  record->extra->writes_before = writes_.size();
  CommitFunction(record, outputs);
  return outputs;
}

void GradientTape::Recorder::CheckReadsUnchanged(const TapeRecord& record) const {
  // The first write that is in the way, as nothing behind it matters.
  size_t first = writes_.size();
  const SegmentRead* changed = nullptr;
  for (const SegmentRead& read : record.extra->reads) {
    const Places where(read.view);
    writes_.VisitBackwards(read.buffer_id, [&](size_t number, const WriteLog::Write& write) {
      if (number < record.extra->writes_before || !write.IsLaterThan(read.version)) return false;
      if (number < first && write.where.MayOverlap(where)) {
        first = number;
        changed = &read;
      }
      return true;
    });
    if (read.shared.end() == 0) continue;
    writes_.VisitBackwards(WriteLog::kSharedMemory,
                           [&](size_t number, const WriteLog::Write& write) {
                             if (number < record.extra->writes_before) return false;
                             if (number < first && write.where.MayOverlap(read.shared)) {
                               first = number;
                               changed = &read;
                             }
                             return true;
                           });
  }
  if (changed == nullptr) return;
  const WriteLog::Write& write = writes_[first];
  ThrowFailedPrecondition(absl::StrCat(
      "gradient tape: Op [", changed->op, "] in a segment read ", Described(changed->view),
      " (version ", changed->version, "), which it reads again in Backward(), and ", write.Text(),
      " overwrote it (version ", write.version, "); expected it unchanged until Backward()"));
}

void GradientTape::Recorder::BackThroughSegment(TapeRecord& record, bool keep) {
  bool any = false;
  absl::InlinedVector<NDArray, 2> gradients = TakeGradients(record, &any);
  std::vector<NDArray> inputs;
  std::function<std::vector<NDArray>(absl::Span<const NDArray>)> segment;
  if (any) {
    CheckReadsUnchanged(record);
    for (int i = 0; i < record.input_count; ++i) {
      TapedView& view = record.view(i);
      inputs.push_back(view.present() ? Recalled(record, view, keep, i) : NDArray());
    }
    segment = keep ? record.extra->segment : std::move(record.extra->segment);
  }
  if (!keep) {
    kept_.Forget(record);
    records_.Drop();
  }
  if (!any) return;
  const TapeRecord* const stop = records_.last();
  {
    std::vector<NDArray> outputs;
    {
      // A tape that was stopped, or has run before, has left: what it records again it steps out of, as while it recorded.
      const bool had_left = !frame_.is_in();
      if (had_left) frame_.Enter();
      const absl::Cleanup leave = [this, had_left] {
        if (had_left) frame_.Leave();
      };
      const RecorderFrame::Only only(this);
      outputs = segment(inputs);
    }
    segment = nullptr;
    inputs.clear();
    if (outputs.size() != gradients.size()) {
      ThrowInvalidArgument(absl::StrCat("gradient tape: a segment returned ", outputs.size(),
                                        " arrays when called again, ", gradients.size(),
                                        " before; expected the same"));
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!gradients[o].is_defined()) continue;
      FreeView view(outputs[o]);
      view.slot = SlotOf(outputs[o]);
      if (!Flows(view)) continue;
      if (!(outputs[o].shape() == gradients[o].shape()) ||
          outputs[o].dtype() != gradients[o].dtype()) {
        ThrowInvalidArgument(absl::StrCat("gradient tape: output ", o,
                                          " of a segment called again is ", Described(outputs[o]),
                                          ", expected ", Described(gradients[o])));
      }
      shadows_.Add(view, ElementsOf(view), std::move(gradients[o]));
    }
  }
  BackTo(stop, /*keep=*/false);
}

}  // namespace tidepool
