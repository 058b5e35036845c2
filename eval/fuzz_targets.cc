// States of evaluations from elsewhere.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_binary.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/eval/testing/evaluation_data.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace tidepool {
namespace {

std::vector<std::unique_ptr<BaseEvaluation>> Fresh() {
  std::vector<std::unique_ptr<BaseEvaluation>> fresh;
  fresh.push_back(std::make_unique<Evaluation>(5));
  fresh.push_back(std::make_unique<ROC>());
  fresh.push_back(std::make_unique<ROCBinary>(4, 10));
  fresh.push_back(std::make_unique<ROCMultiClass>(5));
  fresh.push_back(std::make_unique<EvaluationBinary>(4));
  fresh.push_back(std::make_unique<EvaluationCalibration>(5, 3, 4));
  fresh.push_back(std::make_unique<RegressionEvaluation>(4));
  return fresh;
}

std::vector<std::string> States() {
  const EvaluationData classes = ClassData(), outputs = OutputData(), binary = BinaryData();
  std::vector<std::string> states;
  for (const bool weighted : {false, true}) {
    for (const auto& evaluation : Fresh()) {
      states.push_back(evaluation->Serialize());
      for (const EvaluationData* data : {&classes, &outputs, &binary}) {
        try {
          evaluation->Add(data->Batch(weighted, 0, 12));
          states.push_back(evaluation->Serialize());
        } catch (const Error&) {
          // Data of another kind.
        }
      }
    }
  }
  return states;
}

// One number.
void MutateState(ByteMutator& mutator, std::string& bytes) {
  const size_t numbers = bytes.find('\n', bytes.find('\n') + 1) + 1;
  if (numbers == 0 || bytes.size() < numbers + 8 || mutator.Below(3) == 0)
    return mutator.Mutate(bytes);
  const size_t at = numbers + 8 * mutator.Below((bytes.size() - numbers) / 8);
  const uint64_t number = mutator.Number(12);
  for (int i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>(number >> (8 * i));
}

void ReadState(const std::string& bytes) {
  bool accepted = false;
  std::unique_ptr<Error> refused;
  for (const auto& evaluation : Fresh()) {
    const std::string before = evaluation->Serialize();
    try {
      evaluation->MergeSerialized(bytes);
      accepted = true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                  error.code() == absl::StatusCode::kInvalidArgument)
          << error.message();
      EXPECT_EQ(evaluation->Serialize(), before);
      // Of the evaluations of other kinds, not worth telling.
      if (refused == nullptr || error.code() == absl::StatusCode::kDataLoss)
        refused = std::make_unique<Error>(error);
      continue;
    }
    // What was accepted is printed and sent as anything else.
    EXPECT_FALSE(evaluation->Report().empty());
    const std::string state = evaluation->Serialize();
    evaluation->MergeSerialized(state);
    evaluation->Reset();
    evaluation->MergeSerialized(state);
    EXPECT_EQ(evaluation->Serialize(), state);
  }
  if (!accepted) throw *refused;
}

TIDEPOOL_FUZZ_TARGET(States, {.corpus = &States, .mutate = &MutateState, .run = &ReadState});

}  // namespace
}  // namespace tidepool
