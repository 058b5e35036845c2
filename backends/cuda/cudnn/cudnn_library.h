// cuDNN, found at run time: programs neither need it nor are built with it.
#ifndef TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_LIBRARY_H_
#define TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_LIBRARY_H_

#include <cstddef>
#include <string>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// The functions that are used, declared by us as versions 8 and 9 have them: X(Name, result and
// parameters). Statuses, enumerations and descriptors are the ints and pointers that they are.
#define TIDEPOOL_CUDNN_FUNCTIONS(X)                                                                \
  X(GetVersion, size_t())                                                                          \
  X(GetErrorString, const char*(int status))                                                       \
  X(Create, int(void** handle))                                                                    \
  X(Destroy, int(void* handle))                                                                    \
  X(SetStream, int(void* handle, cudaStream_t stream))                                             \
  X(CreateTensorDescriptor, int(void** tensor))                                                    \
  X(DestroyTensorDescriptor, int(void* tensor))                                                    \
  X(SetTensor4dDescriptor, int(void* tensor, int format, int type, int n, int c, int h, int w))    \
  X(CreateFilterDescriptor, int(void** filter))                                                    \
  X(DestroyFilterDescriptor, int(void* filter))                                                    \
  X(SetFilter4dDescriptor, int(void* filter, int type, int format, int k, int c, int h, int w))    \
  X(CreateConvolutionDescriptor, int(void** convolution))                                          \
  X(DestroyConvolutionDescriptor, int(void* convolution))                                          \
  X(SetConvolution2dDescriptor,                                                                    \
    int(void* convolution, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,       \
        int dilation_w, int mode, int compute_type))                                               \
  X(SetConvolutionGroupCount, int(void* convolution, int groups))                                  \
  X(SetConvolutionMathType, int(void* convolution, int math))                                      \
  X(GetConvolutionForwardWorkspaceSize,                                                            \
    int(void* handle, void* x, void* w, void* convolution, void* y, int algorithm, size_t* bytes)) \
  X(ConvolutionForward, int(void* handle, const void* alpha, void* x, const void* x_data, void* w, \
                            const void* w_data, void* convolution, int algorithm, void* workspace, \
                            size_t bytes, const void* beta, void* y, void* y_data))                \
  X(CreateActivationDescriptor, int(void** activation))                                            \
  X(DestroyActivationDescriptor, int(void* activation))                                            \
  X(SetActivationDescriptor, int(void* activation, int mode, int nan, double coefficient))         \
  X(ConvolutionBiasActivationForward,                                                              \
    int(void* handle, const void* alpha, void* x, const void* x_data, void* w, const void* w_data, \
        void* convolution, int algorithm, void* workspace, size_t bytes, const void* alpha_of_z,   \
        void* z, const void* z_data, void* bias, const void* bias_data, void* activation, void* y, \
        void* y_data))                                                                             \
  X(GetConvolutionBackwardDataWorkspaceSize,                                                       \
    int(void* handle, void* w, void* dy, void* convolution, void* dx, int algorithm,               \
        size_t* bytes))                                                                            \
  X(ConvolutionBackwardData,                                                                       \
    int(void* handle, const void* alpha, void* w, const void* w_data, void* dy,                    \
        const void* dy_data, void* convolution, int algorithm, void* workspace, size_t bytes,      \
        const void* beta, void* dx, void* dx_data))                                                \
  X(GetConvolutionBackwardFilterWorkspaceSize,                                                     \
    int(void* handle, void* x, void* dy, void* convolution, void* dw, int algorithm,               \
        size_t* bytes))                                                                            \
  X(ConvolutionBackwardFilter,                                                                     \
    int(void* handle, const void* alpha, void* x, const void* x_data, void* dy,                    \
        const void* dy_data, void* convolution, int algorithm, void* workspace, size_t bytes,      \
        const void* beta, void* dw, void* dw_data))

template <typename Function>
using CudnnFunction = Function*;

struct CudnnLibrary {
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported8 = 9, kNotSupported9 = 3000;  // 3000 to 3999: why
  static constexpr int kFloat = 0, kHalf = 2, kBFloat16 = 9;       // types
  static constexpr int kNhwc = 1;                                  // formats
  static constexpr int kCrossCorrelation = 1;
  static constexpr int kTensorMath = 1, kFmaMath = 3;
  static constexpr int kRelu = 1, kIdentity = 5;   // activations
  static constexpr int kNansAreNotPropagated = 0;  // the one that fused convolutions take
  // Algorithms whose results are the same bits in every run, says the manual.
  static constexpr int kForwardImplicitPrecomputed = 1, kBackwardData1 = 1, kBackwardFilter1 = 1;

#define TIDEPOOL_CUDNN_POINTER(Name, ...) CudnnFunction<__VA_ARGS__> Name = nullptr;
  TIDEPOOL_CUDNN_FUNCTIONS(TIDEPOOL_CUDNN_POINTER)
#undef TIDEPOOL_CUDNN_POINTER

  static bool IsNotSupported(int status) {
    return status == kNotSupported8 || (status >= kNotSupported9 && status < kNotSupported9 + 1000);
  }
  // libcudnn.so.9, .8 or libcudnn.so from where the system looks for libraries; null where there is none
  // that has all the functions, or TIDEPOOL_CUDA_CUDNN=0. Looked for once. Threads: any.
  static const CudnnLibrary* Find();
  // Why Find() is null; else which version it is.
  static std::string Description();
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_LIBRARY_H_
