// Libraries that are looked for at run time: programs neither need them nor are built with them.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_LOADED_LIBRARY_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_LOADED_LIBRARY_H_

#include <initializer_list>
#include <string>

namespace tidepool::cuda {

// Where libraries are looked for: the system, or an emulation.
struct LibrarySource {
  void* (*open)(const char* name);                   // null: there is none
  void* (*symbol)(void* library, const char* name);  // null: it has none of that name
  const char* (*why_not_opened)();                   // the last; null where nothing is known
};
// dlopen, with names that are the library's alone, and dlsym.
extern const LibrarySource kSystemLibraries;

// An open library, which is never closed. Threads: as dlopen.
class LoadedLibrary {
 public:
  // The first of `names` that there is.
  LoadedLibrary(const LibrarySource& source, std::initializer_list<const char*> names);

  bool is_open() const { return library_ != nullptr; }
  // Of the first name, where none is open.
  const std::string& why_not_opened() const { return why_not_opened_; }

  // Sets `function`; to null where the library has none of that name, or is not open.
  template <typename Function>
  void LookUp(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(Symbol(name));
  }
  // The first function that was looked up and is not there; empty where all are.
  const std::string& missing() const { return missing_; }

 private:
  void* Symbol(const char* name);

  const LibrarySource& source_;
  void* library_ = nullptr;
  std::string why_not_opened_, missing_;
};

// What came of looking for a library, once in a program: its functions, and what there is to say of it.
template <typename Functions>
struct FoundLibrary {
  Functions library;
  bool is_usable = false;
  std::string description;  // why not; else the version

  const Functions* usable() const { return is_usable ? &library : nullptr; }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_LOADED_LIBRARY_H_
