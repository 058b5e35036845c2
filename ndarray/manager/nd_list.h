// NDList: arrays in an order, each with a name or without. What operators of many arrays, predictors
// and batches take and give.
//
// A value: copies share the arrays. Cost: that of a vector. Threads: as a vector's.
#ifndef TIDEPOOL_NDARRAY_MANAGER_ND_LIST_H_
#define TIDEPOOL_NDARRAY_MANAGER_ND_LIST_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class NDList {
 public:
  NDList() = default;
  NDList(std::initializer_list<NDArray> arrays) {
    for (const NDArray& array : arrays) Add(array);
  }

  void Add(NDArray array, std::string name = "") {
    arrays_.push_back(std::move(array));
    names_.push_back(std::move(name));
  }
  size_t size() const { return arrays_.size(); }
  bool empty() const { return arrays_.empty(); }
  NDArray& operator[](size_t index) { return arrays_[index]; }
  const NDArray& operator[](size_t index) const { return arrays_[index]; }
  // Throws kInvalidArgument naming the number and the size.
  NDArray& At(size_t index);
  const NDArray& At(size_t index) const;
  // The first of that name. Throws kNotFound naming those there are.
  const NDArray& Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  const std::string& name(size_t index) const { return names_[index]; }
  void SetName(size_t index, std::string name) { names_[index] = std::move(name); }
  // The only array; throws kInvalidArgument when there are more or none.
  const NDArray& Single() const;

  std::vector<NDArray>::iterator begin() { return arrays_.begin(); }
  std::vector<NDArray>::iterator end() { return arrays_.end(); }
  std::vector<NDArray>::const_iterator begin() const { return arrays_.begin(); }
  std::vector<NDArray>::const_iterator end() const { return arrays_.end(); }
  const std::vector<NDArray>& arrays() const { return arrays_; }

  // Closes every array and empties the list.
  void Close();
  std::string ToString() const;  // "x f32 [2, 3], 1: i64 [4]"

 private:
  size_t Find(std::string_view name) const;
  std::vector<NDArray> arrays_;
  std::vector<std::string> names_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_MANAGER_ND_LIST_H_
