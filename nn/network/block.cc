#include "tidepool/nn/block.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// A block by the prefix of its members' names; the outermost has none.
std::string Named(const std::string& prefix) {
  return prefix.empty() ? std::string("the outermost block")
                        : absl::StrCat("block [", prefix.substr(0, prefix.size() - 1), "]");
}

}  // namespace

Block::Block() : root_(this) {}

Block::Block(Block& parent, const std::string& name)
    : root_(parent.root_), prefix_(absl::StrCat(parent.prefix_, name, ".")) {
  parent.AddName(name);
}

Block::~Block() = default;

void Block::AddName(const std::string& name) {
  if (name.empty() || name.find('.') != std::string::npos) {
    ThrowInvalidArgument(absl::StrCat(Named(prefix_), ": a member is called \"", name,
                                      "\", expected a name without dots"));
  }
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
    ThrowInvalidArgument(absl::StrCat(Named(prefix_), ": two members are called \"", name, "\""));
  }
  names_.push_back(name);
}

NDArray Block::Forward(const NDArray&) const {
  ThrowInternal("block: it has neither Forward() nor ForwardOf()");
}

Arrays Block::ForwardOf(absl::Span<const NDArray> inputs) const {
  if (inputs.size() != 1) {
    ThrowInvalidArgument(absl::StrCat("block: ", inputs.size(),
                                      " inputs, expected one, or a block with ForwardOf()"));
  }
  return {Forward(inputs[0])};
}

}  // namespace tidepool::nn
