#include "tidepool/backends/cuda/runtime/loaded_library.h"

#include <dlfcn.h>

namespace tidepool::cuda {

constinit const LibrarySource kSystemLibraries = {
    [](const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); },
    [](void* library, const char* name) { return dlsym(library, name); },
    []() -> const char* { return dlerror(); }};

LoadedLibrary::LoadedLibrary(const LibrarySource& source, std::initializer_list<const char*> names)
    : source_(source) {
  for (const char* const name : names) {
    library_ = source_.open(name);
    if (library_ != nullptr) return;
    if (!why_not_opened_.empty()) continue;
    const char* const why = source_.why_not_opened();
    why_not_opened_ = why != nullptr ? why : std::string(name) + ": not found";
  }
}

void* LoadedLibrary::Symbol(const char* name) {
  void* const symbol = library_ == nullptr ? nullptr : source_.symbol(library_, name);
  if (symbol == nullptr && missing_.empty()) missing_ = name;
  return symbol;
}

}  // namespace tidepool::cuda
