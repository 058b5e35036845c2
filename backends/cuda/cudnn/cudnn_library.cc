#include "tidepool/backends/cuda/cudnn/cudnn_library.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/loaded_library.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_cudnn.h"
#endif

namespace tidepool::cuda {
namespace {

using Found = FoundLibrary<CudnnLibrary>;

#if defined(TIDEPOOL_CUDA_EMULATED)
constexpr LibrarySource kSource = {
    &OpenEmulatedCudnn, [](void*, const char* name) { return EmulatedCudnnSymbol(name); },
    [] { return "no emulated libcudnn.so"; }};
#else
const LibrarySource& kSource = kSystemLibraries;
#endif

Found Look() {
  Found found;
  const char* const wanted = std::getenv("TIDEPOOL_CUDA_CUDNN");
  if (wanted != nullptr && std::string(wanted) == "0") {
    found.description = "not used: TIDEPOOL_CUDA_CUDNN=0";
    return found;
  }
  LoadedLibrary loaded(kSource, {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"});
  if (!loaded.is_open()) {
    found.description = absl::StrCat("not used: ", loaded.why_not_opened());
    return found;
  }
#define TIDEPOOL_CUDNN_LOOK_UP(Name, ...) loaded.LookUp("cudnn" #Name, &found.library.Name);
  TIDEPOOL_CUDNN_FUNCTIONS(TIDEPOOL_CUDNN_LOOK_UP)
#undef TIDEPOOL_CUDNN_LOOK_UP
  if (!loaded.missing().empty()) {
    found.description = absl::StrCat("not used: the library has no ", loaded.missing());
    return found;
  }
  // 90100 is 9.1.0, 8907 is 8.9.7.
  const size_t version = found.library.GetVersion();
  const size_t major = version >= 90000 ? version / 10000 : version / 1000;
  if (major != 8 && major != 9) {
    found.description = absl::StrCat("not used: version ", version, ", expected 8 or 9");
    return found;
  }
  found.is_usable = true;
  found.description = absl::StrCat("version ", version);
  return found;
}

const Found& TheLibrary() {
  static const Found* const found = new Found(Look());
  return *found;
}

}  // namespace

const CudnnLibrary* CudnnLibrary::Find() { return TheLibrary().usable(); }
std::string CudnnLibrary::Description() { return TheLibrary().description; }

}  // namespace tidepool::cuda
