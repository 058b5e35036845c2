// Operators of the C API.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/tools/c_api/attributes.h"
#include "tidepool/tools/c_api/calls.h"
#include "tidepool/tools/c_api/objects.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {

namespace {

struct Operation {
  const NamedOperator* named;
  OperandCount inputs, outputs;
  Prepared prepared;
};

constinit HandleTable<Operation, HandleKind::kOperator> operations;

Operation Prepare(const char* function, const char* name, const char* attributes) {
  CheckGiven(function, "name", name);
  const NamedOperator* const named = FindNamedOperator(name);
  if (named == nullptr)
    ThrowNotFound(absl::StrCat(function, ": no operator [", Shown(name),
                               "]; tidepool_operators() lists them"));
  Attributes read(absl::StrCat("operator [", name, "]"), attributes);
  Prepared prepared = named->prepare(read);
  read.CheckAllRead();
  return {named, CountOperandsOf(named->inputs), CountOperandsOf(named->outputs),
          std::move(prepared)};
}

[[noreturn]] void ThrowCount(const Operation& operation, const char* what, size_t found,
                             const std::string& expected) {
  ThrowInvalidArgument(absl::StrCat("operator [", operation.named->name, "]: ", found, " ", what,
                                    ", expected ", expected));
}

void CheckCount(const Operation& operation, const char* what, size_t found,
                const OperandCount& expected, const std::string& names) {
  if (found < expected.least || found > expected.most)
    ThrowCount(operation, what, found, names.empty() ? "none" : names);
}

// A count that nobody's memory has is a mistake to be told of, not to be followed.
void CheckMost(const char* function, const char* what, size_t count) {
  if (count > ArrayTable::kMostHandles) {
    ThrowInvalidArgument(absl::StrCat(function, ": ", count, " ", what, ", expected at most ",
                                      ArrayTable::kMostHandles));
  }
}

// Results are nothing until a call succeeds: before anything else can fail.
void ClearOutputs(const char* function, tidepool_array* outputs, size_t count) {
  CheckMost(function, "outputs", count);
  if (count > 0) CheckGiven(function, "outputs", outputs);
  std::fill_n(outputs, count, nullptr);
}

// The caller's arrays for the length of a call.
class PinnedInputs {
 public:
  PinnedInputs(const char* function, const Operation& operation, const tidepool_array* handles,
               size_t count) {
    CheckMost(function, "inputs", count);
    CheckCount(operation, "inputs", count, operation.inputs, operation.named->inputs);
    if (count > 0) CheckGiven(function, "inputs", handles);
    for (size_t i = 0; i < count; ++i) {
      const bool may_be_absent = i >= operation.inputs.least && operation.inputs.most != SIZE_MAX;
      if (handles[i] == nullptr && may_be_absent) {
        arrays_.push_back(nullptr);
        continue;
      }
      pinned_.push_back(arrays.Pin(function, handles[i]));
      arrays_.push_back(&*pinned_.back());
    }
    // Absent ones at the end need not be named.
    while (operation.inputs.most != SIZE_MAX && arrays_.size() < operation.inputs.most)
      arrays_.push_back(nullptr);
  }

  operator Inputs() const {
    return Inputs(arrays_.data(), arrays_.size());
  }  // NOLINT: what operators take

 private:
  absl::InlinedVector<ArrayTable::Pinned, 4> pinned_;
  absl::InlinedVector<const NDArray*, 4> arrays_;
};

// To outputs that are cleared.
void Run(const char* function, const Operation& operation, const tidepool_array* inputs,
         size_t input_count, tidepool_array* outputs, size_t output_count) {
  CheckCount(operation, "outputs", output_count, operation.outputs, operation.named->outputs);
  if (operation.prepared.run == nullptr) {
    ThrowInvalidArgument(
        absl::StrCat("operator [", operation.named->name,
                     "] writes to arrays that there are: tidepool_operator_run_into"));
  }
  Results results = operation.prepared.run(PinnedInputs(function, operation, inputs, input_count));
  if (results.size() != output_count)
    ThrowCount(operation, "outputs", output_count, absl::StrCat(results.size()));
  size_t made = 0;
  try {
    for (; made < output_count; ++made) outputs[made] = NewArrayHandle(std::move(results[made]));
  } catch (...) {
    for (size_t i = 0; i < made; ++i) arrays.Release(function, std::exchange(outputs[i], nullptr));
    throw;
  }
}

void CopyResult(const Operation& operation, const NDArray& result, NDArray& destination) {
  if (result.shape() != destination.shape()) {
    ThrowInvalidArgument(absl::StrCat("operator [", operation.named->name, "]: the output is ",
                                      destination.shape().ToString(), ", expected ",
                                      result.shape().ToString()));
  }
  if (result.dtype() != destination.dtype() &&
      !(IsFloating(result.dtype()) && IsFloating(destination.dtype()))) {
    ThrowInvalidArgument(absl::StrCat("operator [", operation.named->name, "]: the output is of ",
                                      DTypeName(destination.dtype()), ", expected ",
                                      DTypeName(result.dtype())));
  }
  CopyInto(result, destination);
}

void RunInto(const char* function, const Operation& operation, const tidepool_array* inputs,
             size_t input_count, const tidepool_array* outputs, size_t output_count) {
  CheckMost(function, "outputs", output_count);
  CheckCount(operation, "outputs", output_count, operation.outputs, operation.named->outputs);
  if (output_count > 0) CheckGiven(function, "outputs", outputs);
  const PinnedInputs pinned(function, operation, inputs, input_count);
  Results destinations;
  for (size_t i = 0; i < output_count; ++i)
    destinations.push_back(*arrays.Pin(function, outputs[i]));
  if (operation.prepared.run_into != nullptr) {
    operation.prepared.run_into(pinned, absl::MakeSpan(destinations));
    return;
  }
  for (const NDArray& destination : destinations) {
    destination.CheckAlive(operation.named->name.c_str(), "output");
    destination.CheckWritable(operation.named->name.c_str());
  }
  const Results results = operation.prepared.run(pinned);
  if (results.size() != output_count)
    ThrowCount(operation, "outputs", output_count, absl::StrCat(results.size()));
  for (size_t i = 0; i < output_count; ++i) CopyResult(operation, results[i], destinations[i]);
}

void DescribeOperands(const char* key, const std::string& list, JsonWriter& json) {
  json.Key(key);
  json.BeginArray();
  for (const std::string& name : CountOperandsOf(list).names) json.String(name);
  json.EndArray();
}

}  // namespace
}  // namespace tidepool::c_api

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

tidepool_status tidepool_operators(char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    JsonWriter text;
    text.BeginArray();
    for (const NamedOperator& named : NamedOperators()) {
      text.BeginObject();
      text.Member("name", named.name);
      DescribeOperands("inputs", named.inputs, text);
      DescribeOperands("outputs", named.outputs, text);
      text.Key("attributes");
      text.BeginArray();
      Attributes description(&text);
      named.prepare(description);
      text.EndArray();
      text.EndObject();
    }
    text.EndArray();
    *json = NewText(std::move(text).Take());
  });
}

tidepool_status tidepool_operator_new(const char* name, const char* attributes,
                                      tidepool_operator* result) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "result", result);
    *result = static_cast<tidepool_operator>(operations.Add(Prepare(function, name, attributes)));
  });
}

tidepool_status tidepool_operator_release(tidepool_operator operation) {
  return Call(__func__, [&](const char* function) { operations.Release(function, operation); });
}

tidepool_status tidepool_operator_run(tidepool_operator operation, const tidepool_array* inputs,
                                      size_t input_count, tidepool_array* outputs,
                                      size_t output_count) {
  return Call(__func__, [&](const char* function) {
    ClearOutputs(function, outputs, output_count);
    Run(function, *operations.Pin(function, operation), inputs, input_count, outputs, output_count);
  });
}

tidepool_status tidepool_operator_run_into(tidepool_operator operation,
                                           const tidepool_array* inputs, size_t input_count,
                                           const tidepool_array* outputs, size_t output_count) {
  return Call(__func__, [&](const char* function) {
    RunInto(function, *operations.Pin(function, operation), inputs, input_count, outputs,
            output_count);
  });
}

tidepool_status tidepool_call(const char* name, const char* attributes,
                              const tidepool_array* inputs, size_t input_count,
                              tidepool_array* outputs, size_t output_count) {
  return Call(__func__, [&](const char* function) {
    ClearOutputs(function, outputs, output_count);
    Run(function, Prepare(function, name, attributes), inputs, input_count, outputs, output_count);
  });
}
