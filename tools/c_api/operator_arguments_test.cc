// Any operator with any arguments gives results or an Error: what a stranger gives in C reaches no kernel unchecked.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/tools/c_api/error_terms.h"
#include "tidepool/tools/c_api/names_of_cpp.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {
namespace {

using Json = nlohmann::json;

class Arguments {
 public:
  explicit Arguments(uint64_t seed) : random_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool OneIn(int n) { return Between(1, n) == 1; }

  // Half of the calls have arrays that are alike, so that many get beyond the first check.
  void Begin() {
    rank_ = static_cast<int>(Between(0, 4));
    for (int64_t& size : dims_) size = Between(OneIn(8) ? 0 : 1, 4);
    dtype_ = static_cast<DType>(OneIn(3) ? Between(0, kDTypes - 1) : 0);
    are_alike_ = OneIn(2);
  }

  NDArray Array() {
    if (!are_alike_ || OneIn(6)) {
      const bool was_alike = std::exchange(are_alike_, true);
      const int rank = rank_;
      const DType dtype = dtype_;
      rank_ = static_cast<int>(Between(0, 5));
      if (OneIn(2)) dtype_ = OneIn(2) ? DType::kInt64 : static_cast<DType>(Between(0, kDTypes - 1));
      for (int64_t& size : dims_) size = Between(OneIn(8) ? 0 : 1, 4);
      NDArray array = Array();
      rank_ = rank, dtype_ = dtype, are_alike_ = was_alike;
      return array;
    }
    NDArray array = Full(Shape(absl::Span<const int64_t>(dims_, rank_)), Between(-2, 3), dtype_);
    if (rank_ > 0 && OneIn(5)) array = array.Transpose();
    return array;
  }

  // Of what the operator describes, now and then of another type or left out.
  std::string Attributes(const Json& described) {
    Json attributes = Json::object();
    for (const Json& attribute : described) {
      if (attribute.contains("default") ? OneIn(2) : OneIn(20)) continue;
      attributes[attribute["name"].get<std::string>()] =
          Value(OneIn(30) ? "?" : attribute["type"].get<std::string>());
    }
    return attributes.dump();
  }

 private:
  Json Value(const std::string& type) {
    if (type == "bool") return OneIn(2);
    if (type == "int" || type == "?")
      return OneIn(20) ? Between(INT64_MIN, INT64_MAX) : Between(-3, 5);
    if (type == "unsigned") return Between(0, 9);
    if (type == "number")
      return OneIn(10) ? Json("inf") : Json(static_cast<double>(Between(-4, 8)) / 4);
    if (type == "dtype") return DTypeName(static_cast<DType>(Between(0, kDTypes - 1)));
    if (type == "text") return OneIn(2) ? "ij,jk->ik" : "ii";
    if (type == "ints") {
      Json list = Json::array();
      for (int64_t i = Between(0, 4); i > 0; --i) list.push_back(Between(OneIn(4) ? -2 : 0, 4));
      return list;
    }
    return type.substr(0, type.find('|'));
  }

  std::mt19937_64 random_;
  int rank_ = 0;
  int64_t dims_[5] = {};
  DType dtype_ = DType::kFloat32;
  bool are_alike_ = true;
};

Json DescriptionOf(const NamedOperator& named) {
  JsonWriter json;
  json.BeginArray();
  Attributes description(&json);
  named.prepare(description);
  json.EndArray();
  return Json::parse(std::move(json).Take());
}

TEST(OperatorArguments, AnyAreAnsweredByResultsOrAnError) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Arguments arguments(seed);
  constexpr int kCalls = 100;
  int results = 0, refused = 0;
  for (const NamedOperator& named : NamedOperators()) {
    const Json described = DescriptionOf(named);
    const OperandCount inputs = CountOperandsOf(named.inputs),
                       outputs = CountOperandsOf(named.outputs);
    for (int call = 0; call < kCalls; ++call) {
      arguments.Begin();
      std::vector<NDArray> arrays;
      std::vector<const NDArray*> given;
      const size_t count = inputs.most == SIZE_MAX ? arguments.Between(1, 3) : inputs.most;
      for (size_t i = 0; i < count; ++i) arrays.push_back(arguments.Array());
      for (size_t i = 0; i < count; ++i) {
        const bool is_absent = i >= inputs.least && inputs.most != SIZE_MAX && arguments.OneIn(2);
        given.push_back(is_absent ? nullptr : &arrays[i]);
      }
      const std::string attributes = arguments.Attributes(described);
      SCOPED_TRACE(named.name + " " + attributes);
      try {
        Attributes read("operator", attributes.c_str());
        const Prepared prepared = named.prepare(read);
        read.CheckAllRead();
        if (prepared.run_into != nullptr && (prepared.run == nullptr || arguments.OneIn(3))) {
          std::vector<NDArray> there;
          for (size_t i = 0; i < outputs.least; ++i) there.push_back(arguments.Array());
          prepared.run_into(given, absl::MakeSpan(there));
        } else {
          for (const NDArray& result : prepared.run(given)) result.Dup();
        }
        ++results;
      } catch (const Error& error) {
        EXPECT_NE(error.code(), absl::StatusCode::kInternal) << error.what();
        const std::string message = InTermsOfC("tidepool_call", error.what());
        EXPECT_EQ(NameOfCpp(message.c_str()), nullptr) << message;
        ++refused;
      }
    }
  }
  // Neither all nor none: else what is drawn is of no use.
  EXPECT_GT(results, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tidepool::c_api
