#include "tidepool/nn/distributed/rank_agreement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

// Of what ranks say to each other in a step; counts up with each change of it.
constexpr int kProtocol = 3;

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

// In a message: as much as can be read, from a little before where they part.
std::string Short(const std::string& text, const std::string& other) {
  constexpr size_t kMost = 400, kBefore = 100;
  if (text.size() <= kMost) return text;
  size_t same = 0;
  while (same < text.size() && same < other.size() && text[same] == other[same]) ++same;
  const size_t begin = same + kBefore <= kMost ? 0 : std::min(same, text.size()) - kBefore;
  const bool is_cut = text.size() - begin > kMost;
  return absl::StrCat(begin > 0 ? "..." : "", text.substr(begin, kMost), is_cut ? "..." : "");
}

// The shortest text that is read back to the same bits.
std::string Exact(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

std::string LossOf(const Network& network) {
  const Loss* const loss = network.loss();
  if (loss == nullptr) {
    return network.loss_function() == nullptr ? "the default one" : "a function of the program's";
  }
  // Its own text has six digits.
  const LossConfig& config = loss->config();
  std::string text = absl::StrCat(loss->ToString(), ", delta ", Exact(config.delta),
                                  ", label smoothing ", Exact(config.label_smoothing));
  for (const double weight : config.class_weights) absl::StrAppend(&text, " ", Exact(weight));
  return text;
}

// "[0, 100) rate 0.1, [100, 120) frozen"
std::string GroupsOf(const Updater& updater) {
  std::vector<std::string> groups;
  for (const ParameterGroup& group : updater.groups()) {
    groups.push_back(
        absl::StrCat("[", group.begin, ", ", group.end, ")",
                     group.frozen ? " frozen" : absl::StrCat(" rate ", Exact(group.rate)),
                     group.decays || group.frozen ? "" : " without decay"));
  }
  return absl::StrJoin(groups, ", ");
}

// Numbers of layers, which Network::Describe tells by six digits. Empty of a network that is a
// program.
std::string LayersOf(const Network& network) {
  return network.config() != nullptr ? NetworkToJson(*network.config(), -1) : "";
}

}  // namespace

RankFacts FactsOf(Trainer& trainer) {
  const Network& network = trainer.network();
  RankFacts facts = {
      {"version", absl::StrCat(kProtocol)},
      {"network", network.Describe()},
      {"layers", LayersOf(network)},
      {"parameters", absl::StrCat(DTypeName(network.dtype()), ": ", LayoutOf(network))},
      {"compute type", network.compute_type().has_value() ? DTypeName(*network.compute_type())
                                                          : "that of the parameters"}};
  for (auto& setting : SettingsOf(trainer)) facts.push_back(std::move(setting));
  return facts;
}

RankFacts SettingsOf(Trainer& trainer) {
  const Updater& updater = trainer.updater();
  const LossScale* const loss_scale = trainer.loss_scale();
  RankFacts facts = {
      {"updater", updater.config().ToExactString()},
      {"groups of parameters", GroupsOf(updater)},
      {"loss", LossOf(trainer.network())},
      {"loss scale", loss_scale != nullptr ? loss_scale->config().ToString() : "none"}};
  // With a loss scale it is that one's, which goes with the state that ranks are given.
  if (loss_scale == nullptr) facts.emplace_back("gradient scale", Exact(updater.gradient_scale()));
  return facts;
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
    ThrowFailedPrecondition(
        absl::StrCat("distributed: rank ", communicator.rank(), ": ", facts[i].first, ": found ",
                     Short(facts[i].second, expected[i].second), ", expected ",
                     Short(expected[i].second, facts[i].second), ", as rank 0 has"));
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

void CheckSettings(Communicator& communicator, Trainer& trainer) {
  const RankFacts settings = SettingsOf(trainer);
  std::string text;
  for (const auto& [name, value] : settings) absl::StrAppend(&text, name, ": ", value, "\n");
  const uint64_t mine = HashOf(text.data(), text.size());
  uint64_t first = mine;
  communicator.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(&first), sizeof(first)), 0,
                         "hash of settings");
  double differ = first == mine ? 0 : 1;
  communicator.AllReduce(absl::MakeSpan(&differ, 1), "whether settings differ");
  if (differ > 0) CheckFacts(communicator, settings);
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
