// Segments that are computed again: what they read and write in their first run, and their second one.
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"

namespace tidepool {
namespace {

std::string Described(const TapedView& view) { return absl::StrCat(DTypeName(view.dtype), " ", view.shape().ToString()); }
std::string Described(const NDArray& array) { return Described(TapedView(array)); }

}  // namespace

// Sees the calls of a segment's first run, of which nothing is recorded: what it reads must be the same when it runs again.
class GradientTape::Recorder::SegmentRun final : public CallRecorder {
 public:
  explicit SegmentRun(Recorder& tape) : tape_(tape) {}

  void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
           AttributesRef attributes) override {
    const RecorderFrame::OutsideOf outside(tape_.frame_);
    for (const NDArray* const output : outputs) {
      if (output != nullptr) CheckWrite(op, *output);
    }
    for (const NDArray* const input : inputs) {
      const Buffer* const buffer = input != nullptr ? input->buffer().get() : nullptr;
      if (buffer == nullptr || made_.contains(buffer->id)) continue;
      reads_.push_back({buffer->id, buffer->version.load(std::memory_order_relaxed), TapedView(*input), Info(op).name});
    }
    Dispatch(op, inputs, outputs, attributes);
    tape_.NoteWrites(Info(op).name, outputs);
    for (const NDArray* const output : outputs) {
      const Buffer* const buffer = output != nullptr ? output->buffer().get() : nullptr;
      if (buffer != nullptr && buffer->version.load(std::memory_order_relaxed) <= 1) made_.insert(buffer->id);
    }
  }
  void NoteFunction(const char*, absl::Span<const NDArray>, absl::Span<const NDArray>, Backward) override {}
  std::vector<NDArray> RunSegment(std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
                                  absl::Span<const NDArray> inputs) override {
    return function(inputs);
  }

  std::vector<SegmentRead> TakeReads() { return std::move(reads_); }

 private:
  // What the tape recorded before has a gradient by the value it had.
  void CheckWrite(OpCode op, const NDArray& output) const {
    TapedView view(output);
    view.slot = tape_.SlotOf(output);
    if (!tape_.Flows(view)) return;
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "] in a segment overwrites ", Described(output),
                                      ", which the gradient tape watches or has recorded and the segment would overwrite again "
                                      "in Backward(); expected a result of its own (x = f(x) instead of in place)"));
  }

  Recorder& tape_;
  std::unordered_set<uint64_t> made_;  // in it: nobody else writes to those
  std::vector<SegmentRead> reads_;
};

std::vector<NDArray> GradientTape::Recorder::RunSegment(
    std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function, absl::Span<const NDArray> inputs) {
  std::vector<uint32_t> versions;
  for (const NDArray& input : inputs) {
    const Buffer* const buffer = input.is_defined() ? input.buffer().get() : nullptr;
    versions.push_back(buffer != nullptr ? buffer->version.load(std::memory_order_relaxed) : 0);
  }
  std::vector<NDArray> outputs;
  std::vector<SegmentRead> reads;
  {
    const RecorderFrame::OutsideOf outside(frame_);
    if (CallRecorder* const outer = CallRecorder::Current()) {
      outputs = outer->RunSegment(function, inputs);  // and looks at what it does
    } else {
      SegmentRun run(*this);
      const RecorderFrame::Only only(&run);
      outputs = function(inputs);
      reads = run.TakeReads();
    }
  }
  TapeRecord* const record =
      NewRecord(TapeRecord::Kind::kSegment, "segment", inputs, static_cast<int>(outputs.size()), /*keep_inputs=*/true);
  // It is computed again from what they were when it began.
  for (size_t i = 0; i < inputs.size(); ++i) record->views[i].version = versions[i];
  record->extra->segment = std::move(function);
  record->extra->reads = std::move(reads);
  record->extra->writes_before = writes_.size();
  CommitFunction(record, outputs);
  return outputs;
}

void GradientTape::Recorder::CheckReadsUnchanged(const TapeRecord& record) const {
  for (size_t w = record.extra->writes_before; w < writes_.size(); ++w) {
    const Write& write = writes_[w];
    for (const SegmentRead& read : record.extra->reads) {
      if (write.buffer_id != read.buffer_id || static_cast<int32_t>(write.version - read.version) <= 0) continue;
      const auto [begin, end] = read.view.Extent();
      if (write.begin >= end || begin >= write.end) continue;
      ThrowFailedPrecondition(absl::StrCat(
          "gradient tape: Op [", read.op, "] in a segment read ", Described(read.view), " (version ", read.version,
          "), which it reads again in Backward(), and Op [", write.op, "]",
          write.site != nullptr ? absl::StrCat(" (called at ", write.site->Site(), ")") : "", " overwrote it (version ",
          write.version, "); expected it unchanged until Backward()"));
    }
  }
}

void GradientTape::Recorder::BackThroughSegment(TapeRecord& record, bool keep) {
  bool any = false;
  std::vector<NDArray> gradients = TakeGradients(record, &any);
  std::vector<NDArray> inputs;
  std::function<std::vector<NDArray>(absl::Span<const NDArray>)> segment;
  if (any) {
    CheckReadsUnchanged(record);
    for (int i = 0; i < record.input_count; ++i) {
      TapedView& view = record.views[i];
      inputs.push_back(view.present ? Recalled(record, view, keep, i) : NDArray());
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
      const RecorderFrame::Only only(this);
      outputs = segment(inputs);
    }
    segment = nullptr;
    inputs.clear();
    if (outputs.size() != gradients.size()) {
      ThrowInvalidArgument(absl::StrCat("gradient tape: a segment returned ", outputs.size(), " arrays when called again, ",
                                        gradients.size(), " before; expected the same"));
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!gradients[o].is_defined()) continue;
      TapedView view(outputs[o]);
      view.slot = SlotOf(outputs[o]);
      if (!Flows(view)) continue;
      if (!(outputs[o].shape() == gradients[o].shape()) || outputs[o].dtype() != gradients[o].dtype()) {
        ThrowInvalidArgument(absl::StrCat("gradient tape: output ", o, " of a segment called again is ",
                                          Described(outputs[o]), ", expected ", Described(gradients[o])));
      }
      shadows_.Add(view, ElementsOf(view), std::move(gradients[o]));
    }
  }
  BackTo(stop, /*keep=*/false);
}

}  // namespace tidepool
