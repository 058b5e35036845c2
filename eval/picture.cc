#include "tidepool/eval/picture.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {

void SavePicture(const CurvePlot& plot, const std::string& path) {
  const bool is_png = absl::EndsWithIgnoreCase(path, ".png");
  if (!is_png && !absl::EndsWithIgnoreCase(path, ".svg")) {
    ThrowInvalidArgument(absl::StrCat("picture: found the name ", OneLine(path),
                                      ", expected one that ends in .png or .svg"));
  }
  const std::string bytes = DrawPicture(plot, is_png ? PictureFormat::kPng : PictureFormat::kSvg);
  AtomicFile file(path);
  file.Append(bytes);
  file.Commit();
}

}  // namespace tidepool
