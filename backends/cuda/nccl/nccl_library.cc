#include "tidepool/backends/cuda/nccl/nccl_library.h"

#include "absl/strings/str_cat.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#else
#include <dlfcn.h>
#endif

namespace tidepool::cuda {
namespace {

struct Found {
  NcclLibrary library;
  bool is_usable = false;
  std::string description;
};

#if defined(TIDEPOOL_CUDA_EMULATED)
void* Open(const char* name) { return OpenEmulatedNccl(name); }
void* Symbol(void*, const char* name) { return EmulatedNcclSymbol(name); }
std::string WhyNotOpened() { return "no emulated NCCL"; }
#else
void* Open(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void* Symbol(void* library, const char* name) { return dlsym(library, name); }
std::string WhyNotOpened() {
  const char* const text = dlerror();
  return text != nullptr ? text : "not found";
}
#endif

Found Look() {
  Found found;
  void* opened = nullptr;
  std::string why;
  for (const char* name : {"libnccl.so.2", "libnccl.so"}) {
    opened = Open(name);
    if (opened != nullptr) break;
    if (why.empty()) why = WhyNotOpened();
  }
  if (opened == nullptr) {
    found.description = absl::StrCat("found neither libnccl.so.2 nor libnccl.so (", why, ")");
    return found;
  }
  std::string missing;
#define TIDEPOOL_NCCL_LOOK_UP(Name, ...)                                                          \
  found.library.Name = reinterpret_cast<NcclFunction<__VA_ARGS__>>(Symbol(opened, "nccl" #Name)); \
  if (found.library.Name == nullptr && missing.empty()) missing = "nccl" #Name;
  TIDEPOOL_NCCL_FUNCTIONS(TIDEPOOL_NCCL_LOOK_UP)
#undef TIDEPOOL_NCCL_LOOK_UP
  // An older library is told by its version, whatever it lacks beside that.
  int& version = found.library.version;
  const bool has_version = found.library.GetVersion != nullptr &&
                           found.library.GetVersion(&version) == NcclLibrary::kSuccess;
  if (has_version && (version < NcclLibrary::kOldest || version >= 30000)) {
    found.description = absl::StrCat("found version ", NcclLibrary::VersionName(version),
                                     " of it, expected 2.17 or later of version 2");
    return found;
  }
  if (!missing.empty() || !has_version) {
    found.description =
        absl::StrCat("found a library that has no ",
                     missing.empty() ? "version that ncclGetVersion tells" : missing);
    return found;
  }
  found.is_usable = true;
  found.description = absl::StrCat("version ", NcclLibrary::VersionName(version));
  return found;
}

const Found& TheLibrary() {
  static const Found* const found = new Found(Look());
  return *found;
}

}  // namespace

const NcclLibrary* NcclLibrary::Find() {
  return TheLibrary().is_usable ? &TheLibrary().library : nullptr;
}
std::string NcclLibrary::Description() { return TheLibrary().description; }

std::string NcclLibrary::VersionName(int version) {
  // Of four digits up to 2.8.
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int rest = version >= 10000 ? version % 10000 : version % 1000;
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

}  // namespace tidepool::cuda
