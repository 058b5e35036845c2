// Makes gzip and IDX files for tests.
#ifndef TIDEPOOL_NN_DATA_TESTING_GZIP_WRITER_H_
#define TIDEPOOL_NN_DATA_TESTING_GZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

// One gzip member, compressed by zlib at `level`.
std::string Gzip(const std::string& content, int level = 6);

// An IDX file of unsigned bytes; `data` need not have the length that `dims` claim.
std::string Idx(const std::vector<uint32_t>& dims, const std::string& data, uint8_t type = 8);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_TESTING_GZIP_WRITER_H_
