#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/ops/activation.h"

namespace tidepool {

void GradientTape::Recorder::BackToEarlierValues(TapeRecord& record, bool keep) {
  if (record.earlier == EarlierValues::kAreOverwritten ||
      record.earlier == EarlierValues::kFlowOn) {
    return;
  }
  // With gradients of inputs wanted, rows without any are refused as such.
  if (record.earlier == EarlierValues::kAreUnknown && record.plan != nullptr) return;
  for (int o = 0; o < record.output_count; ++o) {
    TapedView& view = record.output(o);
    if (view.slot == TapedView::kNoSlot) continue;
    const int64_t elements = ElementsOf(view);
    if (record.earlier == EarlierValues::kAreUnknown) {
      if (!shadows_.Has(view)) continue;
      ThrowUnimplemented(absl::StrCat(
          "gradient tape: Op [", record.name(), "]: there is no gradient with respect to what its ",
          OperandName(Info(record.op).outputs, o), " held, and one flows to it"));
    }
    NDArray dz = shadows_.Take(view, elements).gradient;
    if (!dz.is_defined()) continue;
    if (record.earlier == EarlierValues::kFlowThroughRelu) {
      dz = ReluGrad(Recalled(record, view, keep, record.input_count), dz);
      task_.relu_done = true;
    } else {
      const NDArray places = Recalled(record, record.view(1), keep || record.plan != nullptr, 1);
      const NDArray zero = FromScalar(0, dz.dtype(), Place::Scratch(dz.device()));
      const NDArray zeros = zero.BroadcastTo(places.shape());
      const ScatterAttributes overwrite{ScatterReduction::kNone};
      dz = dz.CopyTo(Place::CurrentOn(dz.device()));
      Dispatch(OpCode::kScatter, {&zeros, &places}, {&dz}, &overwrite);
    }
    shadows_.Add(view, elements, std::move(dz));
  }
}

}  // namespace tidepool
