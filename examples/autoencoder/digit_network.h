// The network that says an image in a few numbers and draws it from those.
#ifndef TIDEPOOL_EXAMPLES_AUTOENCODER_DIGIT_NETWORK_H_
#define TIDEPOOL_EXAMPLES_AUTOENCODER_DIGIT_NETWORK_H_

#include <cstdint>

#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::examples {

// Half the size, a quarter, the code, and back. Images' sizes are multiples of 4.
inline nn::NetworkConfig DigitNetwork(int64_t height, int64_t width, int64_t filters,
                                      int64_t code) {
  constexpr nn::Activation kRelu = nn::Activation::kRelu;
  const nn::Conv2DTranspose::Options twice{
      .stride = {2, 2}, .before = {1, 1}, .behind = {1, 1}, .output_padding = {1, 1}};
  return nn::NetworkConfig::Sequential(
      {height, width, 1},
      {nn::Conv2D(filters, 3, 3, kRelu, nn::Conv2D::SamePadding(3, 2)),
       nn::Conv2D(2 * filters, 3, 3, kRelu, nn::Conv2D::SamePadding(3, 2)), nn::Dense(code),
       nn::Dense(height / 4 * (width / 4) * 2 * filters, kRelu),
       nn::ReshapeLayer({height / 4, width / 4, 2 * filters}),
       nn::Conv2DTranspose(filters, {3, 3}, kRelu, twice),
       nn::Conv2DTranspose(1, {3, 3}, nn::Activation::kIdentity, twice)});
}

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_AUTOENCODER_DIGIT_NETWORK_H_
