// The fields of a layer's configuration, named once: by the same call they are written to JSON, read from it (with unknown
// and missing ones found) and told in descriptions.
#ifndef TIDEPOOL_NN_LAYERS_FIELD_VISITOR_H_
#define TIDEPOOL_NN_LAYERS_FIELD_VISITOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::nn {

class AnyLayer;

// Optional ones keep the value they have where a description leaves them out.
enum class Presence : uint8_t { kRequired, kOptional };

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  // Reads into `value` or writes it, as the visitor does. Names are unique within a layer and none is "kind", "name", "inputs"
  // or "tied". Visitors that read throw kInvalidArgument naming field, found and expected.
  virtual void Field(const char* name, int64_t& value, Presence presence = Presence::kOptional) = 0;
  virtual void Field(const char* name, double& value, Presence presence = Presence::kOptional) = 0;
  virtual void Field(const char* name, bool& value, Presence presence = Presence::kOptional) = 0;
  virtual void Field(const char* name, std::string& value,
                     Presence presence = Presence::kOptional) = 0;
  virtual void Field(const char* name, std::vector<int64_t>& value,
                     Presence presence = Presence::kOptional) = 0;
  // A layer within a layer, which is written with its kind and its fields; a layer there may be none of, when it is null.
  virtual void Field(const char* name, AnyLayer& value,
                     Presence presence = Presence::kOptional) = 0;

  // One of `names`, whose places are the enumerators' values.
  template <typename Enum>
  void Choice(const char* name, Enum& value, absl::Span<const char* const> names) {
    int index = static_cast<int>(value);
    ChoiceIndex(name, index, names);
    value = static_cast<Enum>(index);
  }

 protected:
  virtual void ChoiceIndex(const char* name, int& index, absl::Span<const char* const> names) = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_FIELD_VISITOR_H_
