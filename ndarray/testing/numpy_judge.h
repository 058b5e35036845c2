// What numpy_judge_test.cc and the files of what it judges share.
#ifndef TIDEPOOL_NDARRAY_TESTING_NUMPY_JUDGE_H_
#define TIDEPOOL_NDARRAY_TESTING_NUMPY_JUDGE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

using Json = nlohmann::json;
// A case of numpy_judge.py with its operands.
using Evaluate = std::function<NDArray(const Json& c, const std::vector<NDArray>& in)>;

// The type that DTypeName names so; std::invalid_argument for others.
DType TypeNamed(const std::string& name);

// The calls of numpy_judge_calls.py.
const std::map<std::string, Evaluate>& JudgedCalls();
// The operators of numpy_judge_layers.py.
const std::map<std::string, Evaluate>& JudgedLayers();
// The operators of numpy_judge_networks.py.
const std::map<std::string, Evaluate>& JudgedNetworkOperators();
// The operators of numpy_judge_operators.py.
const std::map<std::string, Evaluate>& MoreJudgedOperators();

// Rows of the operator list by the file they stand in, each [code, name]: those that functions of arrays are made of.
Json JudgedFamilies();

// Makes operands views with the same values: 0 as they are, 1 columns first, 2 every second element, 3 backwards. On
// simulated:0 or CUDA where a program links the kernels of one.
void LayOut(const Json& views, std::vector<NDArray>* in);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_NUMPY_JUDGE_H_
