#include "tidepool/ndarray/gradient/gradient_tape.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"

namespace tidepool {

GradientTape::GradientTape() : recorder_(std::make_unique<Recorder>()) {}
GradientTape::~GradientTape() = default;

void GradientTape::Watch(const NDArray& x) {
  recorder_->Watch(x, NDArray(), GradientWrite::kReplace);
}
void GradientTape::Watch(const NDArray& x, const NDArray& gradient, GradientWrite write) {
  gradient.CheckAlive("watch", "gradient");
  recorder_->Watch(x, gradient, write);
}
void GradientTape::Backward(absl::Span<const NDArray> outputs,
                            absl::Span<const NDArray> output_gradients, bool keep) {
  recorder_->RunBackward(outputs, output_gradients, keep);
}
void GradientTape::BackwardFrom(NDArray output, NDArray output_gradient) {
  recorder_->RunBackward({&output, 1}, {&output_gradient, 1}, /*keep=*/false, [&] {
    output = NDArray();
    output_gradient = NDArray();
  });
}
NDArray GradientTape::Gradient(const NDArray& x) const { return recorder_->Gradient(x); }
void GradientTape::Restart() { recorder_->Restart(); }
void GradientTape::Clear() { recorder_->Clear(); }
void GradientTape::set_part(int part) { recorder_->set_part(part); }
void GradientTape::set_placement(BackwardPlacement* placement) {
  recorder_->set_placement(placement);
}
void GradientTape::set_listener(GradientListener* listener) { recorder_->set_listener(listener); }
void GradientTape::VisitKept(absl::FunctionRef<void(const BufferHandle&)> visit) {
  recorder_->VisitKept(visit);
}
int GradientTape::KeptHandles(uint64_t buffer_id) const {
  return recorder_->kept().HandlesOf(buffer_id);
}
bool GradientTape::ReleaseKept(uint64_t buffer_id, int others, KeptArrayStore* store) {
  return recorder_->kept().Release(buffer_id, others, store);
}
void GradientTape::VisitRemakeable(int part, absl::FunctionRef<bool(const BufferHandle&)> goes) {
  recorder_->VisitRemakeable(part, goes);
}
void GradientTape::Stop() { recorder_->Stop(); }
bool GradientTape::is_recording() const { return recorder_->is_recording(); }
int64_t GradientTape::calls() const { return recorder_->calls(); }
std::vector<SavedArray> GradientTape::Saved() const { return recorder_->Saved(); }

int64_t GradientTape::saved_bytes() const {
  int64_t bytes = 0;
  for (const SavedArray& saved : Saved()) bytes += saved.bytes;
  return bytes;
}

std::string GradientTape::Report() const {
  std::string report = absl::StrCat(calls(), " calls recorded, ", saved_bytes(),
                                    " bytes kept for their gradients\n");
  for (const SavedArray& saved : Saved()) {
    absl::StrAppend(&report, "  ", saved.op, " keeps ", saved.operand, ": ", saved.array, ", ",
                    saved.bytes, " bytes\n");
  }
  return report;
}

std::vector<NDArray> Recomputed(
    std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
    absl::Span<const NDArray> inputs) {
  CallRecorder* const recorder = CallRecorder::Current();
  return recorder != nullptr ? recorder->RunSegment(std::move(function), inputs) : function(inputs);
}

void SetGradient(const char* name, absl::Span<const NDArray> inputs,
                 absl::Span<const NDArray> outputs,
                 std::function<std::vector<NDArray>(absl::Span<const NDArray>)> backward) {
  if (CallRecorder::Current() != nullptr)
    SetGradient(name, inputs, outputs, HandGradientOf(name, std::move(backward)));
}

void SetGradient(const char* name, absl::Span<const NDArray> inputs,
                 absl::Span<const NDArray> outputs, HandGradientHandle backward) {
  if (CallRecorder* const recorder = CallRecorder::Current()) {
    recorder->NoteFunction(name, inputs, outputs, std::move(backward));
  }
}

bool IsRecorded(absl::Span<const NDArray> inputs) {
  const CallRecorder* const recorder = CallRecorder::Current();
  return recorder != nullptr && recorder->Follows(inputs);
}

}  // namespace tidepool
