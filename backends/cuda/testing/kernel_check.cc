#include "tidepool/backends/cuda/testing/kernel_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/comparison.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::cuda {
namespace {

constexpr uint64_t kSeed = 20240711;
constexpr unsigned char kUntouched = 0x5a;

void SetOrder(uint64_t seed) {
#if defined(TIDEPOOL_CUDA_EMULATED)
  EmulatedCuda::Get().set_seed(seed);
#else
  (void)seed;
#endif
}

const Kernel* FindKernel(OpCode op, DeviceType device, DType dtype, const char* provider) {
  for (const Kernel& kernel : KernelRegistry::Find(op, device, dtype)) {
    if (std::strcmp(kernel.provider, provider) == 0) return &kernel;
  }
  return nullptr;
}

// An operand somewhere in memory of its own, whose other elements are kUntouched.
class Placed {
 public:
  Placed(const OperandValues& values, bool strided, std::mt19937_64& random) : values_(values) {
    const Shape& shape = values.shape;
    const int rank = shape.rank();
    std::vector<int> order(rank);
    for (int i = 0; i < rank; ++i) order[i] = i;
    if (strided && random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    int64_t step = strided && random() % 4 == 0 ? 2 : 1, first = 0;
    ref_.dense = true;
    for (int k = rank - 1; k >= 0; --k) {
      const int axis = order[k];
      dims_[axis] = shape[axis];
      const bool reversed = strided && random() % 4 == 0 && shape[axis] > 0;
      strides_[axis] = reversed ? -step : step;
      if (reversed) first += (shape[axis] - 1) * step;
      step *= std::max<int64_t>(1, shape[axis]);
      if (strided && random() % 4 == 0) step += 1 + static_cast<int64_t>(random() % 3);
    }
    int64_t dense_stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      ref_.dense = ref_.dense && strides_[i] == dense_stride;
      dense_stride *= dims_[i];
    }
    width_ = static_cast<int64_t>(DTypeBytes(values.dtype));
    offset_ = first * width_;
    bytes_.assign(std::max<int64_t>(1, step) * width_, kUntouched);
    ForEach([&](int64_t i, int64_t at) { values_.Store(i, &bytes_[at]); });
    ref_.dtype = values.dtype;
    ref_.present = values.present;
    ref_.rank = rank;
    ref_.dims = dims_;
    ref_.strides = strides_;
  }
  ~Placed() {
    if (device_ != nullptr) {
      EXPECT_EQ(cudaFree(device_), cudaSuccess);
    }
  }
  Placed(const Placed&) = delete;

  TensorRef HostRef() {
    TensorRef ref = ref_;
    if (values_.present && ref.NumElements() > 0) ref.data = &bytes_[offset_];
    return ref;
  }
  TensorRef DeviceRef() {
    TensorRef ref = ref_;
    if (!values_.present) return ref;
    if (device_ == nullptr) {
      EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), bytes_.size()), cudaSuccess);
    }
    EXPECT_EQ(cudaMemcpy(device_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
    if (ref.NumElements() > 0) ref.data = device_ + offset_;
    return ref;
  }
  // From the device. Clears `whole` when something beside the elements was written.
  OperandValues ReadDevice(bool* whole) {
    std::vector<unsigned char> now(bytes_.size());
    EXPECT_EQ(cudaMemcpy(now.data(), device_, now.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    OperandValues result = Read(now);
    ForEach([&](int64_t, int64_t at) { std::memset(&now[at], kUntouched, width_); });
    for (const unsigned char byte : now) *whole = *whole && byte == kUntouched;
    return result;
  }
  OperandValues ReadHost() { return Read(bytes_); }

 private:
  template <typename Visit>
  void ForEach(Visit visit) const {
    const int64_t count = values_.present ? values_.shape.NumElements() : 0;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at = offset_;
      for (int axis = values_.shape.rank() - 1; axis >= 0; --axis) {
        at += rest % dims_[axis] * strides_[axis] * width_;
        rest /= dims_[axis];
      }
      visit(i, at);
    }
  }
  OperandValues Read(const std::vector<unsigned char>& bytes) const {
    OperandValues result{values_.shape, values_.dtype, true, {}, {}};
    ForEach([&](int64_t, int64_t at) { result.Append(&bytes[at]); });
    return result;
  }

  OperandValues values_;
  TensorRef ref_;
  int64_t dims_[kMaxRank] = {}, strides_[kMaxRank] = {};
  int64_t width_ = 1, offset_ = 0;
  std::vector<unsigned char> bytes_;
  unsigned char* device_ = nullptr;
};

using Operands = std::vector<std::unique_ptr<Placed>>;
using Results = std::vector<OperandValues>;

Operands Place(const std::vector<OperandValues>& values, bool strided, std::mt19937_64& random) {
  Operands operands;
  for (const OperandValues& operand : values) {
    operands.push_back(std::make_unique<Placed>(operand, strided, random));
  }
  return operands;
}

// Such calls do not reach kernels.
bool AllEmpty(const std::vector<TensorRef>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const TensorRef& ref) { return ref.NumElements() == 0; });
}

Results RunReference(const OpCase& c, const Kernel& kernel) {
  std::mt19937_64 random(1);
  Operands inputs = Place(c.inputs, false, random), outputs = Place(c.outputs, false, random);
  std::vector<TensorRef> in, out;
  for (auto& operand : inputs) in.push_back(operand->HostRef());
  for (auto& operand : outputs) out.push_back(operand->HostRef());
  if (!AllEmpty(out)) kernel.run(KernelCall{c.op, in, out, c.attributes.get().data()});
  Results results;
  for (auto& operand : outputs) results.push_back(operand->ReadHost());
  return results;
}

Results RunCuda(const OpCase& c, const Kernel& kernel, uint64_t layout_seed, int in_place,
                std::string* problem) {
  std::mt19937_64 random(layout_seed);
  Operands inputs = Place(c.inputs, kernel.strided, random);
  Operands outputs = Place(c.outputs, kernel.strided, random);
  if (in_place >= 0) outputs[0] = std::move(inputs[in_place]);
  std::vector<TensorRef> in, out;
  for (auto& operand : outputs) out.push_back(operand->DeviceRef());
  for (auto& operand : inputs) in.push_back(operand != nullptr ? operand->DeviceRef() : out[0]);
  KernelCall call{c.op, in, out, c.attributes.get().data()};
  const size_t scratch_bytes = kernel.scratch_bytes != nullptr ? kernel.scratch_bytes(call) : 0;
  if (scratch_bytes > 0) {
    EXPECT_EQ(cudaMalloc(&call.scratch, scratch_bytes), cudaSuccess);
  }
  // Uploads and downloads are not ordered with the kernels' stream.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  if (!AllEmpty(out)) kernel.run(call);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Results results;
  bool whole = true;
  for (auto& operand : outputs) results.push_back(operand->ReadDevice(&whole));
  if (call.scratch != nullptr) {
    EXPECT_EQ(cudaFree(call.scratch), cudaSuccess);
  }
  if (!whole) *problem = "something outside of the results was written";
  return results;
}

std::string Compare(const OpCase& c, const Results& actual, const Results& expected, bool exactly) {
  for (size_t o = 0; o < expected.size(); ++o) {
    const std::string difference =
        Difference(actual[o], expected[o],
                   exactly ? Tolerance{} : ToleranceOf(c.op, expected[o].dtype), c.inner);
    if (difference.empty()) continue;
    return absl::StrCat(OperandName(Info(c.op).outputs, static_cast<int>(o)), ": ", difference);
  }
  return "";
}

}  // namespace

std::string KernelProblem(const OpCase& c, uint64_t layout_seed) {
  const Kernel* const kernel = FindKernel(c.op, DeviceType::kCuda, c.dtype, "cuda");
  const Kernel* const reference = FindKernel(c.op, DeviceType::kHost, c.dtype, "reference");
  if (kernel == nullptr || reference == nullptr) return "no kernel";
  const Results expected = RunReference(c, *reference);
  std::string problem;
  SetOrder(layout_seed);
  const Results results = RunCuda(c, *kernel, layout_seed, -1, &problem);
  if (problem.empty()) problem = Compare(c, results, expected, false);
  if (!problem.empty()) return problem;
  SetOrder(layout_seed + 1);
  const Results again = RunCuda(c, *kernel, layout_seed, -1, &problem);
  if (problem.empty()) problem = Compare(c, again, results, true);
  if (!problem.empty()) return absl::StrCat("the second time: ", problem);
  for (size_t i = 0; Info(c.op).in_place() && i < c.inputs.size(); ++i) {
    if (!c.inputs[i].present || !(c.inputs[i].shape == c.outputs[0].shape) ||
        c.inputs[i].dtype != c.outputs[0].dtype) {
      continue;
    }
    const Results over = RunCuda(c, *kernel, layout_seed, static_cast<int>(i), &problem);
    if (problem.empty()) problem = Compare(c, over, expected, false);
    if (!problem.empty()) return absl::StrCat("written over input ", i, ": ", problem);
  }
  return "";
}

void CheckRandomCases(OpCode op, int cases_per_type) {
  for (int d = 0; d < kDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (!Contains(Info(op).types, dtype)) continue;
    if (KernelRegistry::Find(op, DeviceType::kCuda, dtype).empty())
      continue;  // a gap that contract_test lists
    for (int i = 0; i < cases_per_type; ++i) {
      std::seed_seq sequence{kSeed, static_cast<uint64_t>(op), static_cast<uint64_t>(dtype),
                             static_cast<uint64_t>(i)};
      std::mt19937_64 random(sequence);
      const OpCase c = MakeOpCase(op, dtype, random);
      const std::string problem = KernelProblem(c, random());
      ASSERT_EQ(problem, "") << c.ToString() << ", seed " << kSeed << ", case " << i;
    }
  }
}

OperandValues RandomOperand(DType dtype, const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  CaseValues values(random);
  OperandValues operand = dtype == DType::kBool    ? values.Ints(shape, 0, 1, dtype)
                          : IsFloating(dtype)      ? values.Floats(shape, false, dtype)
                          : dtype == DType::kUInt8 ? values.Ints(shape, 0, 100, dtype)
                                                   : values.Ints(shape, -100, 100, dtype);
  VisitDType(dtype, [&](auto t) {
    for (double& value : operand.reals) {
      value = ConvertElement<double>(ConvertElement<decltype(t)>(value));
    }
  });
  return operand;
}

OperandValues ResultOperand(DType dtype, const Shape& shape) {
  return CaseValues::Result(dtype, shape);
}

void CheckCase(const OpCase& c) { EXPECT_EQ(KernelProblem(c, kSeed), "") << c.ToString(); }

void CudaKernelTest::SetUp() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error);
  }
}

}  // namespace tidepool::cuda
