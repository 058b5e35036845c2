#include "tidepool/nn/transfer.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/name_pattern.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {
namespace {

constexpr size_t kMostNames = 4;  // that a text shows

// The other side's: "F32 [3, 4]" by name, in its order.
struct Offered {
  std::string where;  // for messages: the file or the network
  std::vector<std::pair<std::string, std::string>> arrays;
  std::function<void(std::string)> refuse;
};

// As safetensors calls the type.
std::string TextOf(const std::string& type, absl::Span<const int64_t> dims) {
  const bool is_long = dims.size() > kMaxRank;
  return absl::StrCat(type, " [", absl::StrJoin(dims.subspan(0, kMaxRank), ", "),
                      is_long ? ", ...]" : "]");
}
std::string TextOf(const NDArray& array) {
  return TextOf(absl::AsciiStrToUpper(DTypeName(array.dtype())), array.shape().span());
}

// What is to be loaded, by its place in network.named_parameters(). Throws before anything is
// written.
std::vector<size_t> Plan(const Offered& offered, const Network& network,
                         const TransferOptions& options, Transferred* result) {
  const std::vector<NamedParameter>& parameters = network.named_parameters();
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) names.push_back(parameter.name);
  const std::string where = absl::StrCat("transfer to network [", network.name(), "]");
  const std::vector<bool> only = MatchNames(options.only, names, where + ": only"),
                          except = MatchNames(options.except, names, where + ": except");
  std::map<std::string, std::string> found;
  for (const auto& [name, text] : offered.arrays) found[name] = text;
  std::vector<size_t> loaded;
  std::set<std::string> used;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto array = found.find(names[i]);
    const bool is_wanted = (options.only.empty() ? array != found.end() : only[i]) && !except[i];
    if (!is_wanted) {
      result->left.push_back(names[i]);
      continue;
    }
    const std::string expected = TextOf(parameters[i].value);
    const std::string what = absl::StrCat(offered.where, ": parameter ", QuotedFromFile(names[i]));
    if (array == found.end())
      offered.refuse(absl::StrCat(what, " is missing, expected ", expected));
    if (array->second != expected) {
      offered.refuse(
          absl::StrCat(what, " is ", array->second, ", expected ", expected,
                       " as the network's, or a pattern in `except` that leaves it out"));
    }
    loaded.push_back(i);
    used.insert(names[i]);
    result->loaded.push_back(names[i]);
  }
  for (const auto& [name, text] : offered.arrays) {
    if (used.count(name) == 0) result->unused.push_back(name);
  }
  if (loaded.empty()) {
    offered.refuse(
        absl::StrCat(offered.where, ": none of ", offered.arrays.size(), " parameters",
                     offered.arrays.empty()
                         ? ""
                         : absl::StrCat(" (", QuotedFromFile(offered.arrays[0].first), " ...)"),
                     " is to be loaded, expected names as ",
                     names.empty() ? "" : QuotedFromFile(names[0]), " of the network"));
  }
  return loaded;
}

std::string Listed(const std::vector<std::string>& names, const char* what) {
  const absl::Span<const std::string> shown = absl::MakeConstSpan(names).subspan(0, kMostNames);
  return absl::StrCat(names.size(), " ", what,
                      names.empty() ? ""
                                    : absl::StrCat(" (", absl::StrJoin(shown, ", "),
                                                   names.size() > kMostNames ? ", ...)" : ")"));
}

}  // namespace

std::string Transferred::ToString() const {
  return absl::StrCat(loaded.size(), " loaded, ", Listed(left, "left as they were"), ", ",
                      Listed(unused, "not used"));
}

Transferred TransferParameters(const std::string& path, Network& network,
                               const TransferOptions& options) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  Offered offered{OneLine(path), {}, [](std::string why) { ThrowDataLoss(std::move(why)); }};
  for (const SafetensorInfo& info : reader.tensors()) {
    // What a checkpoint has beside the parameters is no parameter.
    if (info.name.find('/') == std::string::npos)
      offered.arrays.emplace_back(info.name, TextOf(info.dtype, info.shape));
  }
  Transferred result;
  const HandlesOwnScope handles;
  for (size_t i : Plan(offered, network, options, &result)) {
    NDArray value = network.named_parameters()[i].value;
    ReadSafetensor(reader, reader.Find(network.named_parameters()[i].name), value);
  }
  return result;
}

Transferred TransferParameters(const Network& from, Network& network,
                               const TransferOptions& options) {
  Offered offered{absl::StrCat("network [", from.name(), "]"), {}, [](std::string why) {
                    ThrowInvalidArgument(std::move(why));
                  }};
  std::map<std::string, NDArray> values;
  for (const NamedParameter& parameter : from.named_parameters()) {
    offered.arrays.emplace_back(parameter.name, TextOf(parameter.value));
    values[parameter.name] = parameter.value;
  }
  Transferred result;
  const HandlesOwnScope handles;
  for (size_t i : Plan(offered, network, options, &result)) {
    NDArray value = network.named_parameters()[i].value;
    CopyInto(values[network.named_parameters()[i].name].To(value.device()), value);
  }
  return result;
}

}  // namespace tidepool::nn
