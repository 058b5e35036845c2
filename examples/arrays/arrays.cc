#include <cstdio>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"
using namespace tidepool;

void Print(const char* what, const NDArray& x) {
  std::printf("%s: %s %s\n%s\n", what, DTypeName(x.dtype()), x.shape().ToString().c_str(),
              x.ToString().c_str());
}

int main() {
  NDArray x = Arange(0, 6).Reshape({2, 3});
  Print("a view, its axes reversed", x.Transpose());
  Print("every second column, backwards", x.Slice(1, 2, -1, -2));

  // Types promote as in NumPy; Cast says what you want.
  const std::vector<int64_t> ten = {10, 20, 30};
  Print("f32 + i64", x + FromValues(absl::MakeConstSpan(ten), {3}));
  Print("as i8", Cast(x * 100, DType::kInt8));

  // Into forms and in-place forms allocate nothing.
  NDArray z = Empty({2, 3});
  ExpInto(x, z);
  z /= Sum(z, -1, /*keep_dims=*/true);
  Print("softmax by hand", z);
  Print("where it is large", Where(Greater(z, Full({}, 0.2)), x, Full({}, -1)));
  Print("its largest", TopK(z, 2).places);
  Print("rows picked", Gather(x, FromValues(absl::MakeConstSpan(ten), {3}) * 0, 0));
  Print("product", MatMul(x, x.Transpose()));

  WriteNpy("x.npy", x);  // np.load("x.npy")
  std::printf("read back: %d\n", All(Equal(ReadNpy("x.npy"), x)).Item<bool>());
  try {
    x + Ones({2, 2});
  } catch (const Error& error) {
    std::printf("%s\n", std::string(error.message()).c_str());
  }
}
