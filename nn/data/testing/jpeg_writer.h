// JPEG files for tests.
#ifndef TIDEPOOL_NN_DATA_TESTING_JPEG_WRITER_H_
#define TIDEPOOL_NN_DATA_TESTING_JPEG_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

// Of [height, width, channels], of 1, 3 or 4 (CMYK) channels, at the best quality.
std::string Jpeg(const std::vector<uint8_t>& pixels, int height, int width, int channels,
                 bool progressive = false);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_TESTING_JPEG_WRITER_H_
