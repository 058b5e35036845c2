// Gradients of anything: a tape records the operators that are called on watched arrays, and runs their gradients.
//
//   GradientTape tape;
//   tape.Watch(w);
//   NDArray loss = Mean(Square(MatMul(x, w) - y));
//   tape.Backward(loss);
//   w -= 0.1 * tape.Gradient(w);
//
// What flows where is known by memory, not by handles: copies and views of a watched array are watched, a gradient of a view is
// one of the elements it shows, and writes in place are calls like others (`x(0, All()) = y`, `h += z`, Concat). Arrays that
// are made by other ways (HostView, mutable_data, a NoGradientScope) are constants; a write by them to an array that gradients flow
// through changes its values alone, and gradients flow as if it had not been there (docs/gradients.md). Movers (Dup, Detach,
// Leverage, To ...) carry gradients; NoGradientScope is what stops them.
//
// Memory. A call keeps those of its operands that its gradients read, as the operator's row has it, and only for those
// gradients that are wanted: weights that are not watched keep no activations. Backward() lets go of each before the
// gradient behind it is computed, writes gradients over gradients where nobody else has them, and makes everything in the
// current place, where a workspace plans it. Records are heap memory of the owner "gradient tape", some hundred bytes a call.
//
// A kept operand that was overwritten before Backward() is an error that names the operator that kept it and the one that
// wrote to it; with MemoryTracing on, where each was called. A call in place that overwrites what its own gradient needs is
// refused at once.
//
// Threads: a tape is of the thread that made it, on which alone calls are recorded; it is destroyed there too. Tapes nest: the inner
// one's Backward is recorded by the outer one, which gives gradients of gradients where operators have them.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_GRADIENT_TAPE_H_
#define TIDEPOOL_NDARRAY_GRADIENT_GRADIENT_TAPE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Whether a gradient replaces what an array of the caller's holds or is added to it, as over micro-batches.
enum class GradientWrite : uint8_t { kReplace, kAdd };

// An array that a tape keeps for its gradients.
struct SavedArray {
  std::string op;       // the first call that keeps it
  std::string operand;  // and as what
  std::string array;    // "f32 [32, 28, 28, 1]"
  int64_t bytes = 0;    // of its buffer, which views share and is listed once
};

// Where Backward() makes what it makes, for programs that place their memory part by part (set_part()), as networks do layer by
// layer. All is as without one but for the places. Called on the tape's thread.
class BackwardPlacement {
 public:
  // What was recorded in `part` is next. IsOfPart() was asked for every gradient that is alive, since the call before; what it said
  // yes to has gone elsewhere by now.
  virtual void EnterPart(int part) = 0;
  // Before each record. `leaves`: the gradients that it makes are all of arrays of other parts, or handed in; the current
  // place is that of its results.
  virtual void PlaceResults(bool leaves) = 0;
  // Whether the array does not outlive the part; and where it goes then.
  virtual bool IsOfPart(const NDArray& gradient) = 0;
  virtual Place PlaceOfOthers() = 0;

 protected:
  ~BackwardPlacement() = default;
};

// Told of gradients while Backward() goes on, so that each may be used (sent to other machines, say) before the pass ends.
class GradientListener {
 public:
  // The gradient of what Watch() was called with as the `watched`-th, from 0, is where it was to be written; on a device it is queued.
  // Nothing of the pass touches it from here on. Called once for each watched array, those with no gradient too, on the tape's
  // thread; what it throws ends the pass.
  virtual void GradientIsFinal(int watched) = 0;
  // The gradients of what was recorded in `part` (set_part()) are next; those of what was recorded behind it are done, so that the arrays
  // which only that read are not read again. For each run of records of one part; parts without records are left out.
  virtual void PartIsNext(int /*part*/) {}
  // Whether arrays that calls have read may lie in other memory when their gradients are computed, as those that come only for that, so that what
  // Backward() overwrites says nothing of them.
  virtual bool MovesMemory() const { return false; }

 protected:
  ~GradientListener() = default;
};

// Has arrays that a tape keeps while they are only waiting for its gradients: in a file, say (spill/spilled_tape.h).
class KeptArrayStore {
 public:
  // The buffer that ReleaseKept() let go of, by its id: another one with the bytes, the id and the version of then. Called in
  // Backward(), when the gradient of the last call that kept it is next; what it throws ends the pass.
  virtual BufferHandle Bring(uint64_t buffer_id) = 0;
  // Backward() has come by all that kept it, and nothing wanted it. Not told where a tape lets go of everything: Clear(), Restart(), its
  // end, a Backward() that fails.
  virtual void Drop(uint64_t buffer_id) = 0;

 protected:
  ~KeptArrayStore() = default;
};

// The tape of the header's beginning. It records from when it is made, or from Restart(), until
// Backward().
class GradientTape {
 public:
  GradientTape();
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  // Gradients with respect to `x`, with the value it has now, are wanted. Of an array that was computed on the tape too.
  // Throws kInvalidArgument unless it is a float array with memory whose elements do not repeat, and for a view that shares
  // memory with another watched one and is not it; kFailedPrecondition after Backward(). Twice is once.
  void Watch(const NDArray& x);
  // The gradient is written to `gradient`, of the shape and type of `x` and on its device, when Backward() comes to it, by the
  // kernels themselves where they can: nothing else is allocated for it. Its memory stays the caller's; what kind it is
  // (kGradientStandard, kGradientDeferred, kGradientExternal of an imported one) the ledger has from whoever made it.
  // Backward() that throws leaves it half written.
  void Watch(const NDArray& x, const NDArray& gradient,
             GradientWrite write = GradientWrite::kReplace);

  // The gradients of `loss`, of one element, or of the sum of outputs * output_gradients; without a
  // gradient an output has one element.
  // Recording ends, and unless `keep` what was recorded goes, a call at a time: once only. Throws kInvalidArgument for
  // outputs that nothing watched flows to and gradients that do not fit; kFailedPrecondition for kept operands that are
  // gone or overwritten; kUnimplemented naming an operator without gradients that is in the way; and what operators
  // do: all that was recorded is gone then, and the arrays are as they were.
  void Backward(const NDArray& loss) { Backward(absl::MakeConstSpan(&loss, 1)); }
  void Backward(absl::Span<const NDArray> outputs, absl::Span<const NDArray> output_gradients = {},
                bool keep = false);
  // Of one output, and both handles go before anything is computed: the caller keeps no memory by them meanwhile.
  void BackwardFrom(NDArray output, NDArray output_gradient);

  // After Backward(): with respect to a watched array; zeros where nothing flowed, undefined never. The array itself where one was
  // handed in. Throws kInvalidArgument for arrays that are not watched, kFailedPrecondition before.
  NDArray Gradient(const NDArray& x) const;

  // Forgets what was recorded and found and what is watched, and records anew, on the calling thread, with the memory that the tape
  // has: one that is kept from step to step takes none once it has seen the largest. Throws kFailedPrecondition while Backward()
  // runs, and while it records on another thread.
  void Restart();
  // Likewise lets go of everything, and records nothing until Restart().
  void Clear();

  // What is recorded from here on is of that part of the program; 0 after Restart(). `placement` outlives Backward(); null: all is made
  // in the current place.
  void set_part(int part);
  void set_placement(BackwardPlacement* placement);

  // Outlives Backward(); null: nobody is told. A gradient is final behind the first call that
  // read the array, or, where that cannot be told (a segment may read it), behind the first segment. Of arrays that were
  // computed on the tape, and of those that were watched before calls which this has not seen, it is where they were watched.
  void set_listener(GradientListener* listener);

  // For who has something wait elsewhere that is kept here. `visit`: each buffer that is kept by what was recorded since the last
  // call of this, once a call; not those of watched arrays, which stay.
  void VisitKept(absl::FunctionRef<void(const BufferHandle& buffer)> visit);
  // The handles that visited calls have of it.
  int KeptHandles(uint64_t buffer_id) const;
  // These go, if nobody else has any but for `others` of the caller's and nobody has written to it since it was kept; false otherwise.
  // `store` has it from here on, and outlives Backward().
  bool ReleaseKept(uint64_t buffer_id, int others, KeptArrayStore* store);
  // What functions (HandGradient) of that part, the last one that was recorded, can make again from what else they keep. Where `goes`
  // says so it goes now, and Backward() has it made again. Before VisitKept() of the same calls.
  void VisitRemakeable(int part, absl::FunctionRef<bool(const BufferHandle& buffer)> goes);

  // Calls are no longer recorded.
  void Stop();

  // False after Stop() and Backward(), until Restart().
  bool is_recording() const;

  // What was recorded and is kept: for reports of what training needs.
  int64_t calls() const;
  std::vector<SavedArray> Saved() const;
  int64_t saved_bytes() const;  // of Saved()
  std::string Report() const;   // a line for each

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
};

// Calls on this thread are not recorded by any tape in this scope: new arrays that they make are constants, and arrays that they
// write to stay what they were to a tape.
class NoGradientScope {
 public:
  NoGradientScope() = default;
  NoGradientScope(const NoGradientScope&) = delete;
  NoGradientScope& operator=(const NoGradientScope&) = delete;

 private:
  RecorderFrame frame_{nullptr};
};

// function(inputs), with nothing of its inside kept: Backward() calls it again. For segments whose activations take more memory
// than computing them again takes time. It must give the same again: random numbers by their seeds. What it reads
// beside its inputs (parameters) gets gradients too. `inputs` are kept. Without a tape it is just called.
std::vector<NDArray> Recomputed(
    std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
    absl::Span<const NDArray> inputs);

// `outputs`, computed from `inputs` by any means, with a gradient of one's own: backward(gradients of outputs) gives those of the
// inputs, in their order, undefined for none. `name` is for errors. What `backward` captures is kept until it has run.
// Outputs are new arrays: none is, or is a view of, an input. Without a tape it is nothing.
void SetGradient(
    const char* name, absl::Span<const NDArray> inputs, absl::Span<const NDArray> outputs,
    std::function<std::vector<NDArray>(absl::Span<const NDArray> output_gradients)> backward);

// The same by a HandGradient, whose memory may be used again: a steady step calls no malloc for it.
void SetGradient(const char* name, absl::Span<const NDArray> inputs,
                 absl::Span<const NDArray> outputs, HandGradientHandle backward);

// Whether a tape of this thread would take SetGradient() of such inputs: gradients flow to one of them. Where not nothing
// need be kept for it.
bool IsRecorded(absl::Span<const NDArray> inputs);

// Within such a function, while a tape runs it: whether the gradient of that input goes anywhere. One that does not need not be
// computed: it may be left undefined, and is not looked at. True anywhere else.
bool IsGradientUsed(int input);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_GRADIENT_TAPE_H_
