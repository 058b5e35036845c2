#include "tidepool/nn/budget/spilled_trainer.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/budget/spilled_host.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

SpilledTrainer::SpilledTrainer(Network& network, const UpdaterConfig& updater,
                               const SpilledTrainerOptions& options)
    : host_(std::make_unique<Host>(network, updater, options)) {}
SpilledTrainer::~SpilledTrainer() = default;

Updater& SpilledTrainer::updater() { return host_->updater(); }
int64_t SpilledTrainer::steps() const { return host_->updater().steps(); }
Network& SpilledTrainer::network() { return host_->network(); }
SpilledTrainerStats SpilledTrainer::stats() const { return host_->stats(); }

template <typename Set>
double SpilledTrainer::StepOf(absl::FunctionRef<Set()> make) {
  double loss = 0;
  const uint64_t step = network().step();
  host_->KeepBeside();
  {
    const WorkspaceScope scope(network().training_workspace());
    const Set set = make();
    try {
      loss = network().ComputeGradients(InputsOf(set));
    } catch (...) {
      host_->Drop();
      throw;
    }
  }
  // What fails here fails behind the pass, which has counted the step and moved running averages.
  absl::Cleanup undo = [&] {
    network().set_step(step);
    host_->RestoreBeside();
  };
  host_->Commit();
  std::move(undo).Cancel();
  return loss;
}

double SpilledTrainer::Step(absl::FunctionRef<Batch()> make_batch) { return StepOf(make_batch); }
double SpilledTrainer::Step(absl::FunctionRef<MultiDataSet()> make_set) { return StepOf(make_set); }

namespace {

const NamedParameter& TrainedParameter(const Network& network, int parameter) {
  const std::vector<NamedParameter>& named = network.named_parameters();
  if (parameter < 0 || static_cast<size_t>(parameter) >= named.size() ||
      !named[static_cast<size_t>(parameter)].is_trained) {
    ThrowInvalidArgument(absl::StrCat("spilled trainer: parameter ", parameter,
                                      ", expected the number of a trained one of ", named.size()));
  }
  return named[static_cast<size_t>(parameter)];
}

}  // namespace

NDArray SpilledTrainer::Value(int parameter) const {
  TrainedParameter(host_->network(), parameter);
  return host_->Value(parameter);
}

void SpilledTrainer::SetValue(int parameter, const NDArray& value) {
  const NamedParameter& named = TrainedParameter(network(), parameter);
  if (value.shape() != named.value.shape() || value.dtype() != network().dtype()) {
    ThrowInvalidArgument(absl::StrCat("spilled trainer: parameter \"", named.name, "\" is set to ",
                                      DTypeName(value.dtype()), " ", value.shape().ToString(),
                                      ", expected ", DTypeName(network().dtype()), " ",
                                      named.value.shape().ToString()));
  }
  host_->ChangeUnitOf(parameter, [&](NDArray& to) { CopyInto(value, to); });
}

void SpilledTrainer::SaveParameters(const std::string& path,
                                    const std::map<std::string, std::string>& metadata) const {
  const Network& network = host_->network();
  const std::vector<NamedParameter>& named = network.named_parameters();
  SaveParametersInParts(
      network, path, metadata, {}, [&](const std::string& name, AppendBytes append) {
        for (size_t k = 0; k < named.size(); ++k) {
          if (named[k].name != name) continue;
          const NDArray value = named[k].is_trained ? Value(static_cast<int>(k)) : named[k].value;
          append({value.raw_data(),
                  static_cast<size_t>(value.NumElements()) * DTypeBytes(value.dtype())});
        }
      });
}

void SpilledTrainer::LoadParameters(const std::string& path) {
  const std::vector<NamedParameter>& named = network().named_parameters();
  std::vector<NamedSpec> expected;
  for (const NamedParameter& parameter : named) {
    expected.push_back(
        {parameter.name, {.name = parameter.name, .shape = parameter.value.shape()}});
  }
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  CheckParameters(reader, path, expected, network().dtype());
  for (size_t k = 0; k < named.size(); ++k) {
    const SafetensorInfo& info = reader.Find(named[k].name);
    if (named[k].is_trained) {
      host_->ChangeUnitOf(static_cast<int>(k),
                          [&](NDArray& to) { ReadSafetensor(reader, info, to); });
    } else {
      NDArray value = named[k].value;
      ReadSafetensor(reader, info, value);
    }
  }
}

namespace {

absl::Span<const std::byte> BytesIn(const NDArray& array) {
  return absl::MakeConstSpan(array.raw_data(),
                             static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype()));
}

}  // namespace

// What the updater keeps is an array of all trained elements in these files, with what pads each parameter, which is zeros.
void SpilledTrainer::SaveCheckpoint(const std::string& path, const CheckpointNotes& notes) const {
  const Network& network = host_->network();
  const Updater& updater = host_->updater();
  const std::vector<NamedParameter>& named = network.named_parameters();
  std::map<std::string, int> numbers, states;
  for (size_t k = 0; k < named.size(); ++k) numbers[named[k].name] = static_cast<int>(k);
  std::vector<std::pair<std::string, Shape>> more;
  for (int i = 0; i < updater.state_arrays(); ++i) {
    more.emplace_back(UpdaterStateName(i), Shape({network.trained_elements()}));
    states[more.back().first] = i;
  }
  const std::map<std::string, std::string> metadata =
      CheckpointMetadata(network, updater, path, notes, nullptr);
  SaveParametersInParts(
      network, path, metadata, more, [&](const std::string& name, AppendBytes append) {
        const auto state = states.find(name);
        if (state == states.end()) {
          const int k = numbers.at(name);
          const NamedParameter& parameter = named[static_cast<size_t>(k)];
          return append(BytesIn(parameter.is_trained ? host_->Value(k) : parameter.value));
        }
        int64_t at = 0;
        const auto pad_to = [&](int64_t element) {
          const std::vector<std::byte> zeros(static_cast<size_t>(element - at) *
                                             DTypeBytes(network.dtype()));
          append(zeros);
          at = element;
        };
        for (size_t k = 0; k < named.size() && named[k].is_trained; ++k) {
          pad_to(named[k].begin);
          const NDArray part = host_->State(static_cast<int>(k), state->second);
          append(BytesIn(part));
          at += part.NumElements();
        }
        pad_to(network.trained_elements());
      });
}

CheckpointNotes SpilledTrainer::LoadCheckpoint(const std::string& path) {
  const std::vector<NamedParameter>& named = network().named_parameters();
  const auto element = static_cast<uint64_t>(DTypeBytes(network().dtype()));
  return LoadCheckpointInParts(
      path, network(), updater(), nullptr, [&](const SafetensorsReader& reader) {
        host_->Replace(
            [&](int k, NDArray& value) {
              ReadSafetensor(reader, reader.Find(named[static_cast<size_t>(k)].name), value);
            },
            [&](int k, int array, NDArray& state) {
              const auto begin = static_cast<uint64_t>(named[static_cast<size_t>(k)].begin);
              const auto bytes = static_cast<size_t>(state.NumElements()) * element;
              reader.Read(reader.Find(UpdaterStateName(array)), begin * element,
                          absl::MakeSpan(state.raw_data(), bytes));
              state.MarkWritten();
            });
        for (const NamedParameter& parameter : named) {
          if (parameter.is_trained) continue;
          NDArray value = parameter.value;
          ReadSafetensor(reader, reader.Find(parameter.name), value);
        }
      });
}

}  // namespace tidepool::nn
