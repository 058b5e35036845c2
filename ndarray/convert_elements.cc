#include "tidepool/ndarray/convert_elements.h"

#include <cstring>

namespace tidepool {
namespace {

template <typename From, typename To>
void Convert(const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t count) {
  const From* x = static_cast<const From*>(in);
  To* z = static_cast<To*>(out);
  for (int64_t i = 0; i < count; ++i) z[i * out_stride] = ConvertElement<To>(x[i * in_stride]);
}

// Whatever the bits mean.
template <typename Bits>
void CopyBits(const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t count) {
  if (in_stride == 1 && out_stride == 1) {
    std::memcpy(out, in, count * sizeof(Bits));
    return;
  }
  Convert<Bits, Bits>(in, in_stride, out, out_stride, count);
}

ConvertRun CopierOf(size_t bytes) {
  switch (bytes) {
    case 1:
      return &CopyBits<uint8_t>;
    case 2:
      return &CopyBits<uint16_t>;
    case 4:
      return &CopyBits<uint32_t>;
    default:
      return &CopyBits<uint64_t>;
  }
}

}  // namespace

ConvertRun ConverterOf(DType from, DType to) {
  if (from == to) return CopierOf(DTypeBytes(from));
  return VisitDType(from, [&](auto x) {
    return VisitDType(to, [](auto z) -> ConvertRun { return &Convert<decltype(x), decltype(z)>; });
  });
}

void StoreNumber(double value, DType dtype, void* out) {
  VisitDType(dtype,
             [&](auto z) { *static_cast<decltype(z)*>(out) = ConvertElement<decltype(z)>(value); });
}

double LoadNumber(DType dtype, const void* in) {
  return VisitDType(
      dtype, [&](auto x) { return ConvertElement<double>(*static_cast<const decltype(x)*>(in)); });
}

}  // namespace tidepool
