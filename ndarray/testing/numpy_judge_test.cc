// Runs generated cases and has NumPy judge the results (numpy_judge.py). Skipped without NumPy.
// TIDEPOOL_JUDGE_SEED sets another seed.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/numpy_judge.h"

namespace tidepool {
namespace {

constexpr char kScript[] = "ndarray/testing/numpy_judge.py";

int Shell(const std::string& command) { return std::system(command.c_str()); }

Axes AxesOf(const Json& c) { return Axes(c["axes"].get<std::vector<int>>()); }
Evaluate Reduction(NDArray (*function)(const NDArray&, const Axes&, bool)) {
  return [function](const Json& c, const auto& in) {
    return function(in[0], AxesOf(c), c["keep"].get<bool>());
  };
}

// A number as Python writes it: a whole one without a point, or the names and powers of numpy_judge.py.
Scalar ScalarOf(const std::string& text) {
  static const std::map<std::string, Scalar> named = {{"2**31", int64_t{1} << 31},
                                                      {"-2**53-1", -(int64_t{1} << 53) - 1},
                                                      {"2**63-1", INT64_MAX},
                                                      {"-2**63", INT64_MIN},
                                                      {"1/3", 1.0 / 3},
                                                      {"2.0**63", 0x1p63},
                                                      {"2**63", uint64_t{1} << 63},
                                                      {"2**64-1", UINT64_MAX}};
  if (const auto found = named.find(text); found != named.end()) return found->second;
  if (text.find_first_not_of("-0123456789") == std::string::npos) return Scalar(std::stoll(text));
  return Scalar(std::stod(text));
}
Evaluate WithScalar(NDArray (*function)(const NDArray&, const Scalar&)) {
  return
      [function](const Json& c, const auto& in) { return function(in[0], ScalarOf(c["scalar"])); };
}

// As numpy_judge.py draws them; arrays from in[next] on.
std::vector<Subscript> SubscriptsOf(const Json& list, const std::vector<NDArray>& in, size_t next) {
  const auto end = [](const Json& e) {
    return e.is_null() ? std::optional<int64_t>() : e.get<int64_t>();
  };
  std::vector<Subscript> subscripts;
  for (const Json& s : list) {
    if (s.is_null()) {
      subscripts.emplace_back(NewAxis());
    } else if (s.is_string()) {
      subscripts.emplace_back(Ellipsis());
    } else if (s.is_array()) {
      subscripts.emplace_back(Range(end(s[0]), end(s[1]), s[2].get<int64_t>()));
    } else if (s.is_object()) {
      subscripts.emplace_back(in[next++]);
    } else {
      subscripts.emplace_back(s.get<int64_t>());
    }
  }
  return subscripts;
}
NDArray Indexed(const Json& c, const std::vector<NDArray>& in) {
  const std::vector<Subscript> subscripts = SubscriptsOf(c["subscripts"], in, 1);
  return in.size() > 1 ? Selection(in[0], subscripts).Get() : in[0].Subscripted(subscripts);
}
NDArray SetIndexed(const Json& c, const std::vector<NDArray>& in) {
  const NDArray x = in[0].Dup();
  const std::vector<Subscript> subscripts = SubscriptsOf(c["subscripts"], in, 2);
  if (in.size() > 2) {
    Selection(x, subscripts) = in[1];
  } else {
    x.Subscripted(subscripts) = in[1];
  }
  return x;
}

const std::map<std::string, Evaluate>& Operators() {
  static const auto* const operators = new std::map<std::string, Evaluate>{
      {"index", &Indexed},
      {"set_index", &SetIndexed},
      {"add_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return x + s; })},
      {"subtract_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return x - s; })},
      {"multiply_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return s * x; })},
      {"divide_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return x / s; })},
      {"scalar_subtract", WithScalar([](const NDArray& x, const Scalar& s) { return s - x; })},
      {"scalar_divide", WithScalar([](const NDArray& x, const Scalar& s) { return s / x; })},
      {"less_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return x < s; })},
      {"less_equal_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return s >= x; })},
      {"greater_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return s < x; })},
      {"greater_equal_scalar",
       WithScalar([](const NDArray& x, const Scalar& s) { return x >= s; })},
      {"equal_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return x == s; })},
      {"not_equal_scalar", WithScalar([](const NDArray& x, const Scalar& s) { return s != x; })},
      {"sum", Reduction(&Sum)},
      {"prod", Reduction(&Prod)},
      {"mean", Reduction(&Mean)},
      {"max", Reduction(&Max)},
      {"min", Reduction(&Min)},
      {"any", Reduction(&Any)},
      {"all", Reduction(&All)},
      {"var", [](const Json& c,
                 const auto& in) { return Variance(in[0], AxesOf(c), 0, c["keep"].get<bool>()); }},
      {"argmax", [](const Json& c, const auto& in) { return ArgMax(in[0], c["axis"].get<int>()); }},
      {"argmin", [](const Json& c, const auto& in) { return ArgMin(in[0], c["axis"].get<int>()); }},
      {"sort", [](const Json& c, const auto& in) { return Sort(in[0], c["axis"].get<int>()); }},
      {"argsort",
       [](const Json& c, const auto& in) { return ArgSort(in[0], c["axis"].get<int>()); }},
      {"cumsum", [](const Json& c, const auto& in) { return CumSum(in[0], c["axis"].get<int>()); }},
      {"cast", [](const Json& c, const auto& in) { return Cast(in[0], TypeNamed(c["type"])); }},
      {"read_npy", [](const Json& c, const auto&) { return ReadNpy(c["path"]); }},
  };
  return *operators;
}

const Evaluate& EvaluateOf(const std::string& op) {
  for (const auto* const judged :
       {&Operators(), &JudgedNetworkOperators(), &JudgedLayers(), &JudgedCalls()}) {
    if (const auto found = judged->find(op); found != judged->end()) return found->second;
  }
  return MoreJudgedOperators().at(op);
}

TEST(NumpyJudge, GeneratedCases) {
  if (Shell("python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 has no numpy (Debian: python3-numpy)";
  }
  const std::string folder = testing::TempDir();
  const char* text = std::getenv("TIDEPOOL_JUDGE_SEED");
  const std::string seed = text != nullptr ? text : "20261121";
  std::printf("seed %s\n", seed.c_str());
  std::ofstream(folder + "/families.json") << JudgedFamilies().dump();
  ASSERT_EQ(Shell(absl::StrCat("python3 ", kScript, " make ", folder, " ", seed)), 0);

  const std::map<std::string, NDArray> arrays = ReadNpz(folder + "/cases.npz");
  std::ifstream file(folder + "/cases.json");
  const Json cases = Json::parse(file);
  std::map<std::string, NDArray> results;
  Json texts = Json::object();
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& c = cases[i];
    const std::string op = c["op"], key = absl::StrCat(i);
    std::vector<NDArray> in;
    for (const Json& name : c["inputs"]) in.push_back(arrays.at(name));
    if (c.contains("views")) LayOut(c["views"], &in);
    if (op == "print") {
      texts[key] = in[0].ToString();
    } else if (op == "promote") {
      texts[key] = DTypeName(PromoteTypes(TypeNamed(c["types"][0]), TypeNamed(c["types"][1])));
    } else {
      try {
        results[key] = EvaluateOf(op)(c, in).To(Host());
      } catch (const std::exception& error) {
        FAIL() << "case " << i << " " << c.dump() << ": " << error.what();
      }
    }
  }
  WriteNpz(folder + "/results.npz", results);
  std::ofstream(folder + "/texts.json") << texts.dump();
  EXPECT_EQ(Shell(absl::StrCat("python3 ", kScript, " check ", folder)), 0);
}

}  // namespace
}  // namespace tidepool
