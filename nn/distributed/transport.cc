#include "tidepool/nn/distributed/transport.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

constexpr char kMpi[] = "mpi";

struct Registry {
  std::mutex mutex;
  std::map<std::string, TransportFactory> factories;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

TransportRegistrar::TransportRegistrar(const char* name, TransportFactory factory) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  if (factory != nullptr && registry.factories.emplace(name, factory).second) return;
  std::fprintf(stderr, "distributed: transport \"%s\" is registered twice or has no factory\n",
               name);
  std::abort();
}

std::vector<std::string> LinkedTransports() {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry.factories) names.push_back(name);
  return names;
}

std::unique_ptr<Transport> OpenTransport(const std::string& name) {
  const std::vector<std::string> linked = LinkedTransports();
  const std::string found = linked.empty() ? "none" : absl::StrJoin(linked, ", ");
  if (name.empty() && linked.size() > 1) {
    ThrowInvalidArgument(absl::StrCat("distributed: linked are the transports ", found,
                                      ", expected the name of one"));
  }
  TransportFactory factory = nullptr;
  {
    Registry& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    const auto at = name.empty() ? registry.factories.begin() : registry.factories.find(name);
    if (at != registry.factories.end()) factory = at->second;
  }
  if (factory == nullptr) {
    const std::string wanted = name.empty() ? kMpi : name;
    ThrowUnimplemented(absl::StrCat(
        "distributed: no transport \"", wanted, "\" is linked (found: ", found, "), expected ",
        wanted == kMpi ? "//nn/distributed:mpi"
                       : "the target that registers it (Tidepool has //nn/distributed:mpi alone)",
        " among the program's deps"));
  }
  return factory();
}

}  // namespace tidepool::nn
