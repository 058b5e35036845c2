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

constexpr char kMpi[] = "mpi", kNccl[] = "nccl";

struct Entry {
  TransportFactory factory;
  bool by_name_only;
};
struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry> factories;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

TransportRegistrar::TransportRegistrar(const char* name, TransportFactory factory,
                                       bool by_name_only) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  if (factory != nullptr && registry.factories.emplace(name, Entry{factory, by_name_only}).second)
    return;
  std::fprintf(stderr, "distributed: transport \"%s\" is registered twice or has no factory\n",
               name);
  std::abort();
}

std::vector<std::string> LinkedTransports() {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry.factories) names.push_back(name);
  return names;
}

std::unique_ptr<Transport> OpenTransport(const std::string& name) {
  const std::vector<std::string> linked = LinkedTransports();
  const std::string found = linked.empty() ? "none" : absl::StrJoin(linked, ", ");
  TransportFactory factory = nullptr;
  int candidates = 0;
  {
    Registry& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    for (const auto& [its_name, entry] : registry.factories) {
      if (name.empty() ? entry.by_name_only : its_name != name) continue;
      factory = entry.factory;
      ++candidates;
    }
  }
  if (candidates > 1) {
    ThrowInvalidArgument(absl::StrCat("distributed: linked are the transports ", found,
                                      ", expected the name of one"));
  }
  if (factory == nullptr) {
    const std::string wanted = name.empty() ? kMpi : name;
    ThrowUnimplemented(absl::StrCat(
        "distributed: no transport \"", wanted, "\" is linked (found: ", found, "), expected ",
        wanted == kMpi || wanted == kNccl
            ? absl::StrCat("//nn/distributed:", wanted)
            : "the target that registers it (Tidepool has //nn/distributed:mpi and :nccl)",
        " among the program's deps"));
  }
  return factory();
}

}  // namespace tidepool::nn
