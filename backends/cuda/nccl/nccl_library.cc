#include "tidepool/backends/cuda/nccl/nccl_library.h"

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/loaded_library.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#endif

namespace tidepool::cuda {
namespace {

using Found = FoundLibrary<NcclLibrary>;

#if defined(TIDEPOOL_CUDA_EMULATED)
constexpr LibrarySource kSource = {&OpenEmulatedNccl,
                                   [](void*, const char* name) { return EmulatedNcclSymbol(name); },
                                   [] { return "no emulated NCCL"; }};
#else
const LibrarySource& kSource = kSystemLibraries;
#endif

Found Look() {
  Found found;
  LoadedLibrary loaded(kSource, {"libnccl.so.2", "libnccl.so"});
  if (!loaded.is_open()) {
    found.description =
        absl::StrCat("found neither libnccl.so.2 nor libnccl.so (", loaded.why_not_opened(), ")");
    return found;
  }
#define TIDEPOOL_NCCL_LOOK_UP(Name, ...) loaded.LookUp("nccl" #Name, &found.library.Name);
  TIDEPOOL_NCCL_FUNCTIONS(TIDEPOOL_NCCL_LOOK_UP)
#undef TIDEPOOL_NCCL_LOOK_UP
  const std::string& missing = loaded.missing();
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

const NcclLibrary* NcclLibrary::Find() { return TheLibrary().usable(); }
std::string NcclLibrary::Description() { return TheLibrary().description; }

std::string NcclLibrary::VersionName(int version) {
  // Of four digits up to 2.8.
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int rest = version >= 10000 ? version % 10000 : version % 1000;
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

}  // namespace tidepool::cuda
