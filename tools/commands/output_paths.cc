#include "tidepool/tools/commands/output_paths.h"

#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool::tools {
namespace {

// The same for all names of a file but links at its end, which are replaced, not followed.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  const std::filesystem::path folder =
      std::filesystem::weakly_canonical(whole.parent_path(), error);
  return (folder / whole.filename()).string();
}

}  // namespace

void CheckOutputPaths(const std::vector<FlagPath>& outputs, const std::vector<FlagPath>& inputs) {
  std::map<std::string, const char*> flags;
  for (const auto& [flag, path] : outputs) {
    if (path.empty()) continue;
    for (const auto& [input_flag, input] : inputs) {
      std::error_code none;  // what does not exist is not the same
      if (input.empty() || !std::filesystem::equivalent(path, input, none)) continue;
      ThrowInvalidArgument(absl::StrCat("flag --", flag, " is ", OneLine(path),
                                        ", which is read by --", input_flag,
                                        ", expected another file"));
    }
    try {
      AtomicFile probe(path);  // the temporary file goes with it
    } catch (Error& error) {
      error.AddContext(absl::StrCat("flag --", flag));
      throw;
    }
    const auto [known, is_new] = flags.emplace(Canonical(path), flag);
    if (!is_new) {
      ThrowInvalidArgument(absl::StrCat("flags --", known->second, " and --", flag, " are both ",
                                        OneLine(path), ", expected different files"));
    }
  }
}

std::vector<FlagPath> ImageFilesOf(const char* flag, const std::string& folder) {
  std::vector<FlagPath> files;
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    for (const char* suffix : {"", ".gz"}) {
      files.push_back({flag, absl::StrCat(folder, "/", name, suffix)});
    }
  }
  return files;
}

}  // namespace tidepool::tools
