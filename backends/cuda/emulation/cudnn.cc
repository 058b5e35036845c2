#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/emulated_cudnn.h"
#include "tidepool/backends/cuda/emulation/emulation.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool {
namespace {

using cuda_emulation::Die;
using cuda_emulation::Emulation;

constexpr int kSuccess = 0, kBadParameter = 2000, kNotSupported = 3000, kExecutionFailed = 5000,
              kNotInitialized = 1001;
constexpr int kFloat = 0, kHalf = 2, kBFloat16 = 9, kNhwc = 1, kCrossCorrelation = 1;
constexpr int kFmaMath = 3, kTensorMath = 1;
constexpr size_t kWorkspace = 2048;
enum Direction { kForward, kBackwardData, kBackwardFilter };

EmulatedCudnn kind = EmulatedCudnn::kAbsent;
long calls = 0;
int library = 0;  // has an address

// All descriptors begin with what they are.
struct Tagged {
  int tag;
};
constexpr int kHandleTag = 0x1a, kTensorTag = 0x2b, kFilterTag = 0x3c, kConvolutionTag = 0x4d,
              kActivationTag = 0x5e;
constexpr int kRelu = 1, kIdentity = 5, kNansAreNotPropagated = 0;
struct Handle : Tagged {
  cudaStream_t stream = nullptr;
};
struct Sizes : Tagged {  // of a tensor: images, channels, rows, columns; of a filter: filters first
  int type = -1, n = 0, c = 0, h = 0, w = 0;
  int64_t bytes() const { return int64_t{n} * c * h * w * (type == kFloat ? 4 : 2); }
};
struct Activation : Tagged {
  int mode = -1;
};
struct Convolution : Tagged {
  int pad_h = 0, pad_w = 0, stride_h = 0, stride_w = 0, dilation_h = 0, dilation_w = 0;
  int groups = 1, math = 0;
};

template <typename T>
T& As(void* descriptor, int tag, const char* what) {
  if (descriptor == nullptr || static_cast<Tagged*>(descriptor)->tag != tag) {
    Die("cuDNN: %p is not %s", descriptor, what);
  }
  return *static_cast<T*>(descriptor);
}

// One convolution of one direction; x, w, y: image, filter, result.
struct Problem {
  Sizes x, w, y;
  Convolution v;

  int Status() const {
    const bool types = x.type == w.type && x.type == y.type;
    if (!types || v.stride_h < 1 || v.stride_w < 1 || v.dilation_h < 1 || v.dilation_w < 1 ||
        v.pad_h < 0 || v.pad_w < 0 || v.groups < 1) {
      return kBadParameter;
    }
    auto out = [](int in, int pad, int kernel, int stride, int dilation) {
      return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
    };
    if (x.n != y.n || x.c != w.c * v.groups || y.c != w.n || w.n % v.groups != 0 ||
        y.h != out(x.h, v.pad_h, w.h, v.stride_h, v.dilation_h) ||
        y.w != out(x.w, v.pad_w, w.w, v.stride_w, v.dilation_w)) {
      return kBadParameter;
    }
    // f32 takes either; 16-bit types need the matrix units.
    if (x.type != kFloat && v.math != kTensorMath) return kNotSupported;
    if (x.type == kBFloat16 && kind == EmulatedCudnn::kNoBFloat16) return kNotSupported;
    if (v.stride_h > 1 && kind == EmulatedCudnn::kNoStrides) return kNotSupported;
    // As real ones: not every direction knows groups.
    if (v.groups > 1 && v.dilation_h > 1) return kNotSupported;
    return kSuccess;
  }
};

Problem ProblemOf(void* x, void* w, void* convolution, void* y) {
  return {As<Sizes>(x, kTensorTag, "a tensor"), As<Sizes>(w, kFilterTag, "a filter"),
          As<Sizes>(y, kTensorTag, "a tensor"),
          As<Convolution>(convolution, kConvolutionTag, "a convolution")};
}

// What comes behind a forward convolution; no bias: nothing.
template <typename T>
void Finish(const Problem& p, const T* bias, bool relu, T* y, const std::vector<double>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const double sum = sums[i] + static_cast<double>(bias[i % static_cast<size_t>(p.y.c)]);
    y[i] =
        T(!relu || sum > 0 || (std::isnan(sum) && kind == EmulatedCudnn::kReluKeepsNan) ? sum : 0);
  }
}

template <typename T>
void Convolve(const Problem& p, Direction direction, double beta, T* x, T* w, T* y, const T* bias,
              bool relu) {
  const int group_filters = p.y.c / p.v.groups;
  T* const to = direction == kForward ? y : direction == kBackwardData ? x : w;
  const int64_t count = (direction == kForward        ? p.y
                         : direction == kBackwardData ? p.x
                                                      : p.w)
                            .bytes() /
                        static_cast<int64_t>(sizeof(T));
  std::vector<double> sums(static_cast<size_t>(count));
  for (int n = 0; n < p.y.n; ++n) {
    for (int i = 0; i < p.y.h; ++i) {
      for (int j = 0; j < p.y.w; ++j) {
        for (int f = 0; f < p.y.c; ++f) {
          const int64_t out = ((int64_t{n} * p.y.h + i) * p.y.w + j) * p.y.c + f;
          for (int r = 0; r < p.w.h; ++r) {
            const int row = i * p.v.stride_h - p.v.pad_h + r * p.v.dilation_h;
            if (row < 0 || row >= p.x.h) continue;
            for (int s = 0; s < p.w.w; ++s) {
              const int column = j * p.v.stride_w - p.v.pad_w + s * p.v.dilation_w;
              if (column < 0 || column >= p.x.w) continue;
              for (int c = 0; c < p.w.c; ++c) {
                const int64_t in = ((int64_t{n} * p.x.h + row) * p.x.w + column) * p.x.c +
                                   f / group_filters * p.w.c + c;
                const int64_t tap = ((int64_t{f} * p.w.h + r) * p.w.w + s) * p.w.c + c;
                auto value = [](T v) { return static_cast<double>(v); };
                switch (direction) {
                  case kForward:
                    sums[out] += value(x[in]) * value(w[tap]);
                    break;
                  case kBackwardData:
                    sums[in] += value(y[out]) * value(w[tap]);
                    break;
                  case kBackwardFilter:
                    sums[tap] += value(x[in]) * value(y[out]);
                    break;
                }
              }
            }
          }
        }
      }
    }
  }
  if (bias != nullptr) Finish(p, bias, relu, y, sums);
  for (int64_t i = 0; bias == nullptr && i < count; ++i) {
    to[i] = T(sums[i] + (beta == 0 ? 0 : beta * static_cast<double>(to[i])));
  }
  const bool wrong =
      kind == EmulatedCudnn::kWrongInPart && direction == kBackwardFilter && p.x.type == kHalf;
  if (kind == EmulatedCudnn::kWrong || wrong)
    to[count - 1] = T(static_cast<double>(to[count - 1]) + 1);
}

int Queue(void* handle, Direction direction, const Problem& p, const void* alpha, const void* beta,
          const void* x, const void* w, const void* y, int algorithm, void* workspace, size_t bytes,
          const void* bias = nullptr, bool relu = false) {
  Emulation& emulation = Emulation::Get();
  std::lock_guard<std::mutex> lock(emulation.mutex);
  const Handle& h = As<Handle>(handle, kHandleTag, "a handle");
  if (emulation.lost || EmulatedCuda::Get().call_faults().Next()) return kExecutionFailed;
  if (const int status = p.Status(); status != kSuccess) return status;
  if (algorithm != 1) Die("cuDNN: algorithm %d, whose results may differ between runs", algorithm);
  if (kind == EmulatedCudnn::kRefusesLate && p.x.n % 2 == 1) return kNotSupported;
  if (bytes < kWorkspace || *static_cast<const float*>(alpha) != 1) return kBadParameter;
  struct Range {
    const void* at;
    size_t bytes;
  };
  for (const Range& range :
       {Range{x, static_cast<size_t>(p.x.bytes())}, Range{w, static_cast<size_t>(p.w.bytes())},
        Range{y, static_cast<size_t>(p.y.bytes())}, Range{workspace, bytes}}) {
    if (!emulation.memory.IsDevice(range.at, range.bytes)) {
      Die("cuDNN: operand %p, %zu bytes: not mapped memory of a device", range.at, range.bytes);
    }
    if (reinterpret_cast<uintptr_t>(range.at) % 16 != 0)
      Die("cuDNN: operand %p is not aligned", range.at);
  }
  const double keep = *static_cast<const float*>(beta);
  ++calls;
  emulation.AddDeviceWork(emulation.Stream(h.stream), [=] {
    auto run = [&](auto t) {
      using T = decltype(t);
      Convolve<T>(p, direction, keep, static_cast<T*>(const_cast<void*>(x)),
                  static_cast<T*>(const_cast<void*>(w)), static_cast<T*>(const_cast<void*>(y)),
                  static_cast<const T*>(bias), relu);
    };
    if (p.x.type == kFloat) return run(float());
    p.x.type == kHalf ? run(Float16(0.0f)) : run(BFloat16(0.0f));
  });
  return kSuccess;
}

int WorkspaceOf(const Problem& p, size_t* bytes) {
  *bytes = kWorkspace;
  return p.Status();
}

int SetSizes(Sizes& sizes, int type, int format, int n, int c, int h, int w) {
  if (type != kFloat && type != kHalf && type != kBFloat16) return kBadParameter;
  if (format != kNhwc || n < 1 || c < 1 || h < 1 || w < 1) return kBadParameter;
  sizes.type = type, sizes.n = n, sizes.c = c, sizes.h = h, sizes.w = w;
  return kSuccess;
}

template <typename T, int kTag>
int Make(void** made) {
  T* const descriptor = new T();
  descriptor->tag = kTag;
  *made = descriptor;
  return kSuccess;
}
template <typename T, int kTag>
int Unmake(void* descriptor) {
  T* const dead = &As<T>(descriptor, kTag, "what it is destroyed as");
  dead->tag = 0;
  delete dead;
  return kSuccess;
}

size_t GetVersion() { return kind == EmulatedCudnn::kTooOld ? 7605 : 91000; }
const char* GetErrorString(int status) {
  return status == kNotInitialized ? "CUDNN_STATUS_NOT_INITIALIZED"
                                   : "CUDNN_STATUS_EXECUTION_FAILED";
}
int Create(void** handle) {
  if (kind == EmulatedCudnn::kDoesNotStart) return kNotInitialized;
  return Make<Handle, kHandleTag>(handle);
}
int SetStream(void* handle, cudaStream_t stream) {
  As<Handle>(handle, kHandleTag, "a handle").stream = stream;
  return kSuccess;
}
int SetTensor4dDescriptor(void* tensor, int format, int type, int n, int c, int h, int w) {
  return SetSizes(As<Sizes>(tensor, kTensorTag, "a tensor"), type, format, n, c, h, w);
}
int SetFilter4dDescriptor(void* filter, int type, int format, int k, int c, int h, int w) {
  return SetSizes(As<Sizes>(filter, kFilterTag, "a filter"), type, format, k, c, h, w);
}
int SetConvolution2dDescriptor(void* convolution, int pad_h, int pad_w, int stride_h, int stride_w,
                               int dilation_h, int dilation_w, int mode, int compute_type) {
  if (mode != kCrossCorrelation || compute_type != kFloat) return kBadParameter;
  Convolution& v = As<Convolution>(convolution, kConvolutionTag, "a convolution");
  v.pad_h = pad_h, v.pad_w = pad_w, v.stride_h = stride_h, v.stride_w = stride_w;
  v.dilation_h = dilation_h, v.dilation_w = dilation_w;
  return kSuccess;
}
int SetConvolutionGroupCount(void* convolution, int groups) {
  As<Convolution>(convolution, kConvolutionTag, "a convolution").groups = groups;
  return kSuccess;
}
int SetConvolutionMathType(void* convolution, int math) {
  if (math != kTensorMath && math != kFmaMath) return kBadParameter;
  As<Convolution>(convolution, kConvolutionTag, "a convolution").math = math;
  return kSuccess;
}
int GetConvolutionForwardWorkspaceSize(void*, void* x, void* w, void* v, void* y, int,
                                       size_t* bytes) {
  return WorkspaceOf(ProblemOf(x, w, v, y), bytes);
}
int GetConvolutionBackwardDataWorkspaceSize(void*, void* w, void* dy, void* v, void* dx, int,
                                            size_t* bytes) {
  return WorkspaceOf(ProblemOf(dx, w, v, dy), bytes);
}
int GetConvolutionBackwardFilterWorkspaceSize(void*, void* x, void* dy, void* v, void* dw, int,
                                              size_t* bytes) {
  return WorkspaceOf(ProblemOf(x, dw, v, dy), bytes);
}
int ConvolutionForward(void* handle, const void* alpha, void* x, const void* x_data, void* w,
                       const void* w_data, void* v, int algorithm, void* workspace, size_t bytes,
                       const void* beta, void* y, void* y_data) {
  return Queue(handle, kForward, ProblemOf(x, w, v, y), alpha, beta, x_data, w_data, y_data,
               algorithm, workspace, bytes);
}
int SetActivationDescriptor(void* activation, int mode, int nan, double) {
  if (mode != kRelu && mode != kIdentity) return kBadParameter;
  if (nan != kNansAreNotPropagated) return kNotSupported;
  As<Activation>(activation, kActivationTag, "an activation").mode = mode;
  return kSuccess;
}
int ConvolutionBiasActivationForward(void* handle, const void* alpha, void* x, const void* x_data,
                                     void* w, const void* w_data, void* v, int algorithm,
                                     void* workspace, size_t bytes, const void* alpha_of_z, void* z,
                                     const void* z_data, void* bias, const void* bias_data,
                                     void* activation, void* y, void* y_data) {
  const Problem p = ProblemOf(x, w, v, y);
  const Sizes& terms = As<Sizes>(bias, kTensorTag, "a tensor");
  const int mode = As<Activation>(activation, kActivationTag, "an activation").mode;
  if (terms.n != 1 || terms.h != 1 || terms.w != 1 || terms.c != p.y.c || terms.type != p.y.type ||
      mode < 0 || As<Sizes>(z, kTensorTag, "a tensor").c != p.y.c || z_data != y_data ||
      *static_cast<const float*>(alpha_of_z) != 0) {
    return kBadParameter;
  }
  if (kind == EmulatedCudnn::kFusesNothing) return kNotSupported;
  {
    Emulation& emulation = Emulation::Get();
    std::lock_guard<std::mutex> lock(emulation.mutex);
    if (!emulation.memory.IsDevice(bias_data, static_cast<size_t>(terms.bytes())))
      Die("cuDNN: bias %p: not mapped memory of a device", bias_data);
  }
  const float zero = 0;
  return Queue(handle, kForward, p, alpha, &zero, x_data, w_data, y_data, algorithm, workspace,
               bytes, bias_data, mode == kRelu);
}
int ConvolutionBackwardData(void* handle, const void* alpha, void* w, const void* w_data, void* dy,
                            const void* dy_data, void* v, int algorithm, void* workspace,
                            size_t bytes, const void* beta, void* dx, void* dx_data) {
  return Queue(handle, kBackwardData, ProblemOf(dx, w, v, dy), alpha, beta, dx_data, w_data,
               dy_data, algorithm, workspace, bytes);
}
int ConvolutionBackwardFilter(void* handle, const void* alpha, void* x, const void* x_data,
                              void* dy, const void* dy_data, void* v, int algorithm,
                              void* workspace, size_t bytes, const void* beta, void* dw,
                              void* dw_data) {
  return Queue(handle, kBackwardFilter, ProblemOf(x, dw, v, dy), alpha, beta, x_data, dw_data,
               dy_data, algorithm, workspace, bytes);
}

}  // namespace

void SetEmulatedCudnn(EmulatedCudnn of) { kind = of; }
long EmulatedCudnnCalls() { return calls; }

void* OpenEmulatedCudnn(const char* name) {
  const bool is_there = kind != EmulatedCudnn::kAbsent && std::strcmp(name, "libcudnn.so.9") == 0;
  return is_there ? &library : nullptr;
}

void* EmulatedCudnnSymbol(const char* name) {
  if (kind == EmulatedCudnn::kIncomplete &&
      std::strcmp(name, "cudnnSetConvolutionGroupCount") == 0) {
    return nullptr;
  }
#define TIDEPOOL_SYMBOL(Name, function) \
  if (std::strcmp(name, "cudnn" #Name) == 0) return reinterpret_cast<void*>(function);
#define TIDEPOOL_SAME(Name) TIDEPOOL_SYMBOL(Name, &Name)
  TIDEPOOL_SAME(GetVersion)
  TIDEPOOL_SAME(GetErrorString)
  TIDEPOOL_SAME(Create)
  TIDEPOOL_SAME(SetStream)
  TIDEPOOL_SAME(SetTensor4dDescriptor)
  TIDEPOOL_SAME(SetFilter4dDescriptor)
  TIDEPOOL_SAME(SetConvolution2dDescriptor)
  TIDEPOOL_SAME(SetConvolutionGroupCount)
  TIDEPOOL_SAME(SetConvolutionMathType)
  TIDEPOOL_SAME(GetConvolutionForwardWorkspaceSize)
  TIDEPOOL_SAME(GetConvolutionBackwardDataWorkspaceSize)
  TIDEPOOL_SAME(GetConvolutionBackwardFilterWorkspaceSize)
  TIDEPOOL_SAME(ConvolutionForward)
  TIDEPOOL_SAME(SetActivationDescriptor)
  TIDEPOOL_SAME(ConvolutionBiasActivationForward)
  TIDEPOOL_SAME(ConvolutionBackwardData)
  TIDEPOOL_SAME(ConvolutionBackwardFilter)
  TIDEPOOL_SYMBOL(Destroy, (&Unmake<Handle, kHandleTag>))
  TIDEPOOL_SYMBOL(CreateTensorDescriptor, (&Make<Sizes, kTensorTag>))
  TIDEPOOL_SYMBOL(DestroyTensorDescriptor, (&Unmake<Sizes, kTensorTag>))
  TIDEPOOL_SYMBOL(CreateFilterDescriptor, (&Make<Sizes, kFilterTag>))
  TIDEPOOL_SYMBOL(DestroyFilterDescriptor, (&Unmake<Sizes, kFilterTag>))
  TIDEPOOL_SYMBOL(CreateConvolutionDescriptor, (&Make<Convolution, kConvolutionTag>))
  TIDEPOOL_SYMBOL(CreateActivationDescriptor, (&Make<Activation, kActivationTag>))
  TIDEPOOL_SYMBOL(DestroyActivationDescriptor, (&Unmake<Activation, kActivationTag>))
  TIDEPOOL_SYMBOL(DestroyConvolutionDescriptor, (&Unmake<Convolution, kConvolutionTag>))
#undef TIDEPOOL_SAME
#undef TIDEPOOL_SYMBOL
  return nullptr;
}

}  // namespace tidepool
