#include "tidepool/memory/io/testing/decimal_comma.h"

#include <sys/stat.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// glibc's file of the category: a magic, a number of fields, an offset of each; the first is the
// point, the fourth that as a wide character.
std::string WithComma(std::string bytes) {
  for (const size_t field : {0, 3}) {
    uint32_t offset = 0;
    if (bytes.size() < 8 + 4 * (field + 1)) return "";
    std::memcpy(&offset, bytes.data() + 8 + 4 * field, sizeof(offset));
    if (offset >= bytes.size() || bytes[offset] != '.') return "";
    bytes[offset] = ',';
  }
  return bytes;
}

}  // namespace

DecimalCommaScope::DecimalCommaScope() : before_(std::setlocale(LC_NUMERIC, nullptr)) {
  std::ifstream original("/usr/lib/locale/C.utf8/LC_NUMERIC", std::ios::binary);
  const std::string bytes = WithComma({std::istreambuf_iterator<char>(original), {}});
  if (bytes.empty()) return;
  const std::string folder = testing::TempDir() + "/locales", name = "decimal_comma";
  mkdir(folder.c_str(), 0700);
  mkdir((folder + "/" + name).c_str(), 0700);
  std::ofstream(folder + "/" + name + "/LC_NUMERIC", std::ios::binary) << bytes;
  setenv("LOCPATH", folder.c_str(), 1);
  is_set_ = std::setlocale(LC_NUMERIC, name.c_str()) != nullptr &&
            std::strcmp(std::localeconv()->decimal_point, ",") == 0;
}

DecimalCommaScope::~DecimalCommaScope() { std::setlocale(LC_NUMERIC, before_.c_str()); }

}  // namespace tidepool
