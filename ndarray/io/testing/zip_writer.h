// Makes zip files for tests, lying ones too.
#ifndef TIDEPOOL_NDARRAY_IO_TESTING_ZIP_WRITER_H_
#define TIDEPOOL_NDARRAY_IO_TESTING_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

struct ZipEntry {
  std::string name;
  std::string content;
  bool is_deflated = false;
  bool shares_first =
      false;            // the directory points to the first entry's bytes; content is not used
  int64_t claims = -1;  // in place of the content's length; negative: that
};

std::string ZipOf(const std::vector<ZipEntry>& entries);

// Makes offsets in the directory's end fit where the directory is, as far as there are signatures
// left to find it by.
void RepairZip(std::string& bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_TESTING_ZIP_WRITER_H_
