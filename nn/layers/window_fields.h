// Sizes of windows as fields: [height, width], or one number where all are the same.
#ifndef TIDEPOOL_NN_LAYERS_WINDOW_FIELDS_H_
#define TIDEPOOL_NN_LAYERS_WINDOW_FIELDS_H_

#include <initializer_list>

#include "tidepool/nn/layers/field_visitor.h"

namespace tidepool::nn {

// Throws kInvalidArgument for a list of another length.
void VisitWindow(FieldVisitor& visitor, const char* name, std::initializer_list<int64_t*> sizes,
                 Presence presence = Presence::kOptional);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_WINDOW_FIELDS_H_
