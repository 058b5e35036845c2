// What keeps an operator's attributes apart from another's: which struct they are. Dispatch compares
// it with the operator's, and whoever keeps attributes beyond a call copies as many bytes.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_TYPE_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_TYPE_H_

#include <cstddef>
#include <string>
#include <type_traits>
#include <typeinfo>

namespace tidepool {

// Of operators that take none.
struct NoAttributes {};

class AttributesType {
 public:
  constexpr AttributesType() = default;  // NoAttributes

  // T: a struct of plain values. What it points to would have to outlive the call.
  template <typename T>
  static constexpr AttributesType Of() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "attributes are copied as bytes");
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return AttributesType(&typeid(T), std::is_empty_v<T> ? 0 : sizeof(T));
  }

  constexpr size_t bytes() const { return bytes_; }  // 0: none are taken
  std::string name() const;                          // "tidepool::MatMulAttributes"

  // By name, so that a struct is the same one in each library of the program.
  friend bool operator==(AttributesType a, AttributesType b) {
    return a.type_ == b.type_ || *a.type_ == *b.type_;
  }

 private:
  friend class AttributesRef;
  constexpr AttributesType(const std::type_info* type, size_t bytes) : type_(type), bytes_(bytes) {}

  const std::type_info* type_ = &typeid(NoAttributes);
  size_t bytes_ = 0;
};

// The caller's attributes and which struct they are; made from a pointer to it. Null: none. Two words, so that calls
// pass it in registers.
class AttributesRef {
 public:
  constexpr AttributesRef() = default;
  constexpr AttributesRef(std::nullptr_t) {}  // NOLINT: as a pointer
  template <typename T>
  constexpr AttributesRef(const T* attributes)  // NOLINT: as a pointer
      : AttributesRef(attributes, AttributesType::Of<T>()) {}
  constexpr AttributesRef(const void* attributes, AttributesType type)
      : data_(attributes), type_(attributes != nullptr ? type.type_ : &typeid(NoAttributes)) {}

  constexpr const void* data() const { return data_; }
  bool Is(AttributesType type) const { return type_ == type.type_ || *type_ == *type.type_; }
  std::string type_name() const;

 private:
  const void* data_ = nullptr;
  const std::type_info* type_ = &typeid(NoAttributes);
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_TYPE_H_
