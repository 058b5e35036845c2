// An emulated cuDNN, looked up by name as the library is: what convolutions ask of it, with its checks.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDNN_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDNN_H_

namespace tidepool {

enum class EmulatedCudnn {
  kAbsent,  // at first
  kPresent,
  kIncomplete,  // lacks a function
  kTooOld,      // version 7
  kDoesNotStart,
  kWrong,         // gives other results
  kWrongInPart,   // in the filters' gradient of f16
  kNoBFloat16,    // does not support it
  kNoStrides,     // nor these
  kRefusesLate,   // calls of odd batches, when they are run
  kFusesNothing,  // neither a bias nor a ReLU
  kReluKeepsNan,  // the fused one, which makes 0 of it otherwise
};

// Before the first convolution.
void SetEmulatedCudnn(EmulatedCudnn kind);
// Convolutions that it has queued.
long EmulatedCudnnCalls();

// As dlopen and dlsym.
void* OpenEmulatedCudnn(const char* name);
void* EmulatedCudnnSymbol(const char* name);

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_EMULATED_CUDNN_H_
