#include "tidepool/tools/commands/last_finite.h"

#include <cmath>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/finite.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/tools/commands/command_line.h"

namespace tidepool::tools {

void LastFinite::CheckLoss(double loss, int64_t step, int epoch) {
  if (std::isfinite(loss)) return;
  Fail(step, epoch,
       absl::StrCat("the loss is ", std::isnan(loss) ? "nan"
                                    : loss > 0       ? "inf"
                                                     : "-inf"));
}

void LastFinite::EndEpoch(int64_t step, int epoch, absl::FunctionRef<NDArray()> make_input) {
  if (const std::string found = nn::FindNotFinite(*model_.network); !found.empty()) {
    Fail(step, epoch, found);
  }
  bool is_finite = true;
  const auto look = [&](absl::FunctionRef<NDArray()> make) {
    model_.network->Infer(make, [&](const NDArray& outputs) {
      is_finite = All(IsFinite(outputs)).To(Host()).At<bool>({});
    });
  };
  try {
    look(make_input);
  } catch (const OutOfMemoryError&) {
    // A budget that has room for a planned step may have none for a batch whose activations are all in memory, nor for those of
    // one example beside what is kept already. Finite parameters are worth more than a look at what they make.
    try {
      look([&] { return make_input().Slice(0, 0, 1); });
    } catch (const OutOfMemoryError&) {
    }
  }
  if (!is_finite) Fail(step, epoch, "the network's outputs are not finite");
  if (save_.empty()) return;
  const NDArray& arrays = model_.network->arrays();
  if (kept_epoch_ == 0) {
    try {
      kept_ = arrays.CopyTo(Place::Heap().OnDevice(arrays.device()));
    } catch (const OutOfMemoryError&) {
      has_no_room_ = true;
      return;  // training goes on without a copy
    }
  } else {
    CopyInto(arrays, kept_);
  }
  kept_epoch_ = epoch;
}

void LastFinite::Fail(int64_t step, int epoch, const std::string& what) {
  std::string message = absl::StrCat("step ", step, " (epoch ", epoch, "): ", what,
                                     ": training has diverged; ", advice_);
  if (save_.empty()) throw CommandFailed(message);
  if (kept_epoch_ == 0) {
    throw CommandFailed(absl::StrCat(
        message, has_no_room_
                     ? "; nothing is saved, as no budget had room for a copy of the last epoch"
                     : "; nothing is saved, as no epoch has been finished before"));
  }
  NDArray arrays = model_.network->arrays();
  CopyInto(kept_, arrays);
  std::string file;
  try {
    file = nn::SaveModelBeside(model_, save_, absl::StrCat(".epoch-", kept_epoch_));
  } catch (const Error& error) {
    throw CommandFailed(absl::StrCat(message, "; the model as it was after epoch ", kept_epoch_,
                                     " could not be saved: ", error.message()));
  }
  throw CommandFailed(absl::StrCat(message, "; the model as it was after epoch ", kept_epoch_,
                                   " is in ", OneLine(file)));
}

}  // namespace tidepool::tools
