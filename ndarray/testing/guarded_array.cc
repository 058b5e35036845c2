#include "tidepool/ndarray/testing/guarded_array.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tidepool {
namespace {

// Little-endian: the first bytes of each are the guard of narrower types.
constexpr uint64_t kFloat64Guard = 0x7ff8a5a5a5a5a5a5, kFloat32Guard = 0x7fc5a5a5;  // quiet NaNs
constexpr uint64_t kFloat16Guard = 0x7ea5, kBFloat16Guard = 0x7fe5;
constexpr uint64_t kIntGuard = 0x5a5a5a5a5a5a5a5a, kBoolGuard = 1;

const uint64_t& GuardOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kFloat64Guard;
    case DType::kFloat32:
      return kFloat32Guard;
    case DType::kFloat16:
      return kFloat16Guard;
    case DType::kBFloat16:
      return kBFloat16Guard;
    case DType::kBool:
      return kBoolGuard;
    default:
      return kIntGuard;
  }
}

Shape ShapeOf(const std::vector<int64_t>& dims) { return Shape(absl::Span<const int64_t>(dims)); }

std::vector<int64_t> Offsets(const NDArray& base, const NDArray& view) {
  std::vector<int64_t> offsets;
  const int64_t count = view.NumElements();
  if (count == 0) return offsets;
  const int64_t first =
      (view.raw_data() - base.raw_data()) / static_cast<int64_t>(DTypeBytes(view.dtype()));
  const int64_t* dims = view.shape().dims();
  const int64_t* strides = view.strides();
  std::array<int64_t, kMaxRank> index{};
  offsets.reserve(static_cast<size_t>(count));
  for (int64_t n = 0, offset = first; n < count; ++n) {
    offsets.push_back(offset);
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < dims[axis]) break;
      offset -= dims[axis] * strides[axis];
      index[axis] = 0;
    }
  }
  return offsets;
}

size_t Bytes(const NDArray& array) {
  return static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype());
}

template <size_t kWidth>
void CopyElements(const std::vector<int64_t>& offsets, const std::byte* from, std::byte* to) {
  for (const int64_t offset : offsets) {
    const size_t at = static_cast<size_t>(offset) * kWidth;
    std::memcpy(to + at, from + at, kWidth);
  }
}

// A width that the compiler knows: one move instead of a call for each element.
void CopyElements(const std::vector<int64_t>& offsets, size_t width, const std::byte* from,
                  std::byte* to) {
  switch (width) {
    case 1:
      return CopyElements<1>(offsets, from, to);
    case 2:
      return CopyElements<2>(offsets, from, to);
    case 4:
      return CopyElements<4>(offsets, from, to);
    default:
      return CopyElements<8>(offsets, from, to);
  }
}

void FillWithGuards(NDArray& base) {
  const size_t bytes = Bytes(base), width = DTypeBytes(base.dtype());
  if (bytes == 0) return;
  std::memcpy(base.raw_data(), &GuardOf(base.dtype()), width);
  for (size_t done = width; done < bytes; done *= 2) {
    std::memcpy(base.raw_data() + done, base.raw_data(), std::min(done, bytes - done));
  }
}

// std::equal compares std::byte one by one.
bool SameBytes(const std::vector<std::byte>& expected, const NDArray& array) {
  return expected.empty() || std::memcmp(expected.data(), array.raw_data(), expected.size()) == 0;
}

}  // namespace

NDArray ArrayOf(const OperandValues& values, const Place& place) {
  NDArray array(values.shape, values.dtype, place);
  const auto width = static_cast<int64_t>(DTypeBytes(values.dtype));
  for (int64_t i = 0; i < array.NumElements(); ++i) values.Store(i, array.raw_data() + i * width);
  return array;
}

ViewLayout RandomLayout(std::mt19937_64& random) {
  static constexpr ViewLayout kLayouts[] = {
      ViewLayout::kDense,  ViewLayout::kDense,  ViewLayout::kDense,      ViewLayout::kOffset,
      ViewLayout::kOffset, ViewLayout::kSliced, ViewLayout::kTransposed, ViewLayout::kIndexed};
  return kLayouts[random() % std::size(kLayouts)];
}

const char* ViewLayoutName(ViewLayout layout) {
  static constexpr const char* kNames[] = {"dense", "offset", "sliced", "transposed", "indexed"};
  return kNames[static_cast<int>(layout)];
}

GuardedArray::GuardedArray(const OperandValues& values, ViewLayout layout, std::mt19937_64& random,
                           Device device) {
  const Shape& shape = values.shape;
  const int rank = shape.rank();
  std::vector<int64_t> dims(shape.dims(), shape.dims() + rank);
  if (rank == kMaxRank && layout == ViewLayout::kIndexed) layout = ViewLayout::kSliced;
  auto allocate = [&](const std::vector<int64_t>& base_dims) {
    base_ = NDArray(ShapeOf(base_dims), values.dtype, Place::Heap());
  };
  switch (layout) {
    case ViewLayout::kDense:
      allocate(dims);
      view_ = base_;
      break;
    case ViewLayout::kOffset: {
      const int64_t begin = static_cast<int64_t>(random() % 9);
      const int64_t count = shape.NumElements();
      allocate({begin + count + static_cast<int64_t>(random() % 9)});
      view_ = base_.Slice(0, begin, begin + count).Reshape(shape);
      break;
    }
    case ViewLayout::kSliced:
    case ViewLayout::kTransposed: {
      std::vector<int64_t> begins(rank), base_dims = dims;
      if (layout == ViewLayout::kTransposed) std::reverse(base_dims.begin(), base_dims.end());
      const std::vector<int64_t> inner = base_dims;
      for (int i = 0; i < rank; ++i) {
        begins[i] = static_cast<int64_t>(random() % 3);
        base_dims[i] += begins[i] + static_cast<int64_t>(random() % 3);
      }
      allocate(base_dims);
      view_ = base_;
      for (int i = 0; i < rank; ++i) view_ = view_.Slice(i, begins[i], begins[i] + inner[i]);
      if (layout == ViewLayout::kTransposed) view_ = view_.Transpose();
      break;
    }
    case ViewLayout::kIndexed: {
      const int axis = static_cast<int>(random() % static_cast<uint64_t>(rank + 1));
      const int64_t planes = 2 + static_cast<int64_t>(random() % 2);
      dims.insert(dims.begin() + axis, planes);
      allocate(dims);
      view_ = base_.Index(axis, static_cast<int64_t>(random() % static_cast<uint64_t>(planes)));
      break;
    }
  }
  offsets_ = Offsets(base_, view_);
  const auto width = static_cast<int64_t>(DTypeBytes(values.dtype));
  FillWithGuards(base_);
  for (size_t n = 0; n < offsets_.size(); ++n) {
    values.Store(static_cast<int64_t>(n), base_.raw_data() + offsets_[n] * width);
  }
  before_.assign(base_.raw_data(), base_.raw_data() + Bytes(base_));
  if (device == Host()) return;
  device_base_ = base_.CopyTo(Place::On(device));
  view_ =
      NDArray::FromStrides(device_base_.buffer(), offsets_.empty() ? 0 : offsets_[0], view_.shape(),
                           absl::MakeConstSpan(view_.strides(), view_.rank()), values.dtype);
}

const NDArray& GuardedArray::OnHost() const {
  if (device_base_.is_defined()) base_ = device_base_.CopyTo(Place::Heap());
  return base_;
}

OperandValues GuardedArray::Read() const {
  OperandValues values{view_.shape(), view_.dtype(), true, {}, {}};
  const auto width = static_cast<int64_t>(DTypeBytes(values.dtype));
  const NDArray& base = OnHost();
  for (const int64_t offset : offsets_) values.Append(base.raw_data() + offset * width);
  return values;
}

bool GuardedArray::guards_are_whole() const {
  OnHost();
  std::vector<std::byte> expected = before_;
  CopyElements(offsets_, DTypeBytes(base_.dtype()), base_.raw_data(), expected.data());
  return SameBytes(expected, base_);
}

bool GuardedArray::is_unchanged() const { return SameBytes(before_, OnHost()); }

}  // namespace tidepool
