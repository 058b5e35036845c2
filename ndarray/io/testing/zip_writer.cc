#include "tidepool/ndarray/io/testing/zip_writer.h"

#include <zlib.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace tidepool {
namespace {

void Put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
}

std::string Deflate(const std::string& content) {
  z_stream stream = {};
  if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, content.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// From the version needed on: what a local header and the directory have in common.
std::string Common(const ZipEntry& entry, const ZipEntry& bytes_of, const std::string& data,
                   uint64_t checksum) {
  std::string out;
  Put(out, 20, 2);
  Put(out, 0, 2);
  Put(out, bytes_of.is_deflated ? 8 : 0, 2);
  Put(out, 0x210000, 4);
  Put(out, checksum, 4);
  Put(out, data.size(), 4);
  Put(out, entry.claims >= 0 ? static_cast<uint64_t>(entry.claims) : bytes_of.content.size(), 4);
  Put(out, entry.name.size(), 2);
  Put(out, 0, 2);
  return out;
}

}  // namespace

std::string ZipOf(const std::vector<ZipEntry>& entries) {
  std::string out, directory;
  std::string first_data;
  uint64_t first_checksum = 0;
  for (const ZipEntry& entry : entries) {
    const ZipEntry& bytes_of = entry.shares_first ? entries[0] : entry;
    const std::string data = entry.shares_first  ? first_data
                             : entry.is_deflated ? Deflate(entry.content)
                                                 : entry.content;
    const uint64_t checksum = entry.shares_first
                                  ? first_checksum
                                  : crc32_z(0, reinterpret_cast<const Bytef*>(entry.content.data()),
                                            entry.content.size());
    if (&entry == &entries[0]) first_data = data, first_checksum = checksum;
    const size_t at = entry.shares_first ? 0 : out.size();
    if (!entry.shares_first)
      out += "PK\x03\x04" + Common(entry, bytes_of, data, checksum) + entry.name + data;
    directory += "PK\x01\x02";
    Put(directory, 20, 2);
    directory += Common(entry, bytes_of, data, checksum);
    Put(directory, 0, 2 + 2 + 2 + 4);
    Put(directory, at, 4);
    directory += entry.name;
  }
  const size_t at = out.size();
  out += directory + "PK\x05\x06";
  Put(out, 0, 4);
  Put(out, entries.size(), 2);
  Put(out, entries.size(), 2);
  Put(out, directory.size(), 4);
  Put(out, at, 4);
  Put(out, 0, 2);
  return out;
}

void RepairZip(std::string& bytes) {
  const size_t directory = bytes.find("PK\x01\x02"), end = bytes.rfind("PK\x05\x06");
  if (directory == std::string::npos || end == std::string::npos || end < directory ||
      end + 22 > bytes.size())
    return;
  const auto length = static_cast<uint32_t>(end - directory), at = static_cast<uint32_t>(directory);
  std::memcpy(bytes.data() + end + 12, &length, sizeof(length));
  std::memcpy(bytes.data() + end + 16, &at, sizeof(at));
}

}  // namespace tidepool
