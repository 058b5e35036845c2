// Whether a model is one that answers an image by a score for each class: what programs ask that
// read a model of anybody's and use it so.
#ifndef TIDEPOOL_NN_IMAGE_MODEL_H_
#define TIDEPOOL_NN_IMAGE_MODEL_H_

#include <string>

#include "tidepool/nn/model.h"

namespace tidepool::nn {

// Throws kDataLoss "<where>: ..., expected ..." for more than one input or output, inputs that are
// no images [height, width, 1], outputs that are no list of scores, and types other than f32; where
// parameters are not finite, as RequireFinite() (finite.h). Cost: as that.
void RequireImageModel(const Model& model, const std::string& where);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_IMAGE_MODEL_H_
