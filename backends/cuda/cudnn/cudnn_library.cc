#include "tidepool/backends/cuda/cudnn/cudnn_library.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_cudnn.h"
#else
#include <dlfcn.h>
#endif

namespace tidepool::cuda {
namespace {

struct Found {
  CudnnLibrary library;
  bool is_usable = false;
  std::string description;
};

#if defined(TIDEPOOL_CUDA_EMULATED)
void* Open(const char* name) { return OpenEmulatedCudnn(name); }
void* Symbol(void*, const char* name) { return EmulatedCudnnSymbol(name); }
std::string WhyNotOpened() { return "no emulated libcudnn.so"; }
#else
void* Open(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void* Symbol(void* library, const char* name) { return dlsym(library, name); }
std::string WhyNotOpened() {
  const char* const text = dlerror();
  return text != nullptr ? text : "libcudnn.so: not found";
}
#endif

Found Look() {
  Found found;
  const char* const wanted = std::getenv("TIDEPOOL_CUDA_CUDNN");
  if (wanted != nullptr && std::string(wanted) == "0") {
    found.description = "not used: TIDEPOOL_CUDA_CUDNN=0";
    return found;
  }
  void* opened = nullptr;
  std::string why;
  for (const char* name : {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"}) {
    opened = Open(name);
    if (opened != nullptr) break;
    if (why.empty()) why = WhyNotOpened();
  }
  if (opened == nullptr) {
    found.description = absl::StrCat("not used: ", why);
    return found;
  }
  std::string missing;
#define TIDEPOOL_CUDNN_LOOK_UP(Name, ...)                                          \
  found.library.Name =                                                             \
      reinterpret_cast<CudnnFunction<__VA_ARGS__>>(Symbol(opened, "cudnn" #Name)); \
  if (found.library.Name == nullptr && missing.empty()) missing = "cudnn" #Name;
  TIDEPOOL_CUDNN_FUNCTIONS(TIDEPOOL_CUDNN_LOOK_UP)
#undef TIDEPOOL_CUDNN_LOOK_UP
  if (!missing.empty()) {
    found.description = absl::StrCat("not used: the library has no ", missing);
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

const CudnnLibrary* CudnnLibrary::Find() {
  return TheLibrary().is_usable ? &TheLibrary().library : nullptr;
}
std::string CudnnLibrary::Description() { return TheLibrary().description; }

}  // namespace tidepool::cuda
