#include "tidepool/nn/distributed/rank_agreement.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// Of what ranks say to each other in a step; counts up with each change of it.
constexpr int kProtocol = 2;

// 8 bytes at a time: about as fast as memory is read, and ranks that differ do so by chance, not by
// intent.
uint64_t HashOf(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0xD1342543DE82EF95u;
    hash ^= hash >> 32;
  }
  for (; bytes > 0; ++at, --bytes) hash = (hash ^ *at) * 0x100000001B3u;
  return hash;
}

std::string LayoutOf(const Network& network) {
  std::vector<std::string> parameters;
  for (const NamedParameter& parameter : network.named_parameters()) {
    parameters.push_back(absl::StrCat(parameter.name, " ", parameter.value.shape().ToString(),
                                      parameter.is_frozen ? " frozen" : ""));
  }
  return absl::StrJoin(parameters, ", ");
}

// In a message: as much as can be read.
std::string Short(const std::string& text) {
  constexpr size_t kMost = 400;
  return text.size() <= kMost ? text : absl::StrCat(text.substr(0, kMost), "...");
}

}  // namespace

RankFacts FactsOf(Trainer& trainer) {
  const Network& network = trainer.network();
  const LossScale* const loss_scale = trainer.loss_scale();
  return {{"version", absl::StrCat(kProtocol)},
          {"network", network.Describe()},
          {"parameters", absl::StrCat(DTypeName(network.dtype()), ": ", LayoutOf(network))},
          {"compute type", network.compute_type().has_value() ? DTypeName(*network.compute_type())
                                                              : "that of the parameters"},
          {"updater", trainer.updater().config().ToString()},
          {"loss scale", loss_scale != nullptr ? loss_scale->config().ToString() : "none"}};
}

RankFacts FactsOf(const DataPosition& at) {
  return {{"data", absl::StrCat("batches of ", at.together, " of ", at.examples,
                                " examples by seed ", at.seed)},
          {"place in the data", absl::StrCat("behind batch ", at.batch, " of epoch ", at.epoch)}};
}

uint64_t HashOfBytes(absl::Span<const std::byte> bytes) {
  return HashOf(bytes.data(), bytes.size());
}

void CheckFacts(Communicator& communicator, const RankFacts& facts) {
  // Rank 0's, one behind the other.
  RankFacts expected = facts;
  double count = static_cast<double>(facts.size());
  communicator.Broadcast(absl::MakeSpan(&count, 1), 0, "number of facts");
  expected.resize(static_cast<size_t>(count));
  for (auto& [name, text] : expected) {
    for (std::string* const part : {&name, &text}) {
      double bytes = static_cast<double>(part->size());
      communicator.Broadcast(absl::MakeSpan(&bytes, 1), 0, "length of a fact");
      part->resize(static_cast<size_t>(bytes));
      communicator.Broadcast(
          absl::MakeSpan(reinterpret_cast<std::byte*>(part->data()), part->size()), 0, "fact");
    }
  }
  std::array<double, 2> differ = {
      facts == expected ? 0.0 : 1.0,
      facts == expected ? 0.0 : static_cast<double>(communicator.rank())};
  communicator.AllReduce(absl::MakeSpan(differ), "whether facts differ");
  if (differ[0] == 0) return;
  for (size_t i = 0; i < facts.size() && i < expected.size(); ++i) {
    if (facts[i] == expected[i]) continue;
    ThrowFailedPrecondition(absl::StrCat(
        "distributed: rank ", communicator.rank(), ": ", facts[i].first, ": found ",
        Short(facts[i].second), ", expected ", Short(expected[i].second), ", as rank 0 has"));
  }
  if (facts.size() != expected.size()) {
    ThrowFailedPrecondition(absl::StrCat("distributed: rank ", communicator.rank(), ": ",
                                         facts.size(), " facts, expected ", expected.size(),
                                         ", as rank 0 has"));
  }
  throw Error(
      absl::StatusCode::kAborted,
      absl::StrCat("distributed: ",
                   differ[0] == 1 ? absl::StrCat("rank ", differ[1], " has")
                                  : absl::StrCat(differ[0], " ranks have"),
                   " another program, network, updater or data than rank 0, as said there"));
}

void CheckSameParameters(Communicator& communicator, const Network& network,
                         const std::string& where) {
  // Of hosted parameters no rank has another's.
  const NDArray& of_network = network.is_hosted() ? network.untrained() : network.arrays();
  if (!of_network.is_defined()) return;
  const NDArray arrays = of_network.To(Host());
  const void* const data = network.dtype() == DType::kFloat64
                               ? static_cast<const void*>(arrays.data<double>())
                               : arrays.data<float>();
  const uint64_t mine =
      HashOf(data, static_cast<size_t>(arrays.NumElements()) * DTypeBytes(network.dtype()));
  uint64_t first = mine;
  communicator.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(&first), sizeof(first)), 0,
                         "hash of parameters");
  std::array<double, 2> differ = {first == mine ? 0.0 : 1.0,
                                  first == mine ? 0.0 : static_cast<double>(communicator.rank())};
  communicator.AllReduce(absl::MakeSpan(differ), "whether parameters differ");
  if (differ[0] == 0) return;
  ThrowFailedPrecondition(absl::StrCat(
      "distributed: parameters of ",
      differ[0] == 1 ? absl::StrCat("rank ", differ[1]) : absl::StrCat(differ[0], " ranks"),
      " are not rank 0's ", where, ", expected the same bits on all ranks"));
}

}  // namespace tidepool::nn
