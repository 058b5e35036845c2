// picture.h where there is no cairo.
#include "tidepool/eval/picture.h"
#include "tidepool/memory/error.h"

namespace tidepool {

void CheckPicturesAreBuilt() {
  ThrowUnimplemented(
      "picture: built without cairo, which draws; expected libcairo2-dev where //eval:picture is "
      "built (apt-get install libcairo2-dev)");
}

std::string DrawPicture(const CurvePlot&, PictureFormat) {
  CheckPicturesAreBuilt();
  return {};
}

}  // namespace tidepool
