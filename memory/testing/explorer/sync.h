// The policy of explored code: what StdSync (memory/sync/std_sync.h) is in production.
//
//   template <typename Sync> class Gate { typename Sync::template Atomic<uint32_t> word_{0}; ... };
//   Gate<StdSync>          // production: std::atomic and nothing else
//   Gate<explorer::Sync>   // inside of Explore only
//
// Operations take, behind their usual arguments, the place that they were written at, for reports;
// nobody passes it. Conversions and operators, which cannot, are reported at this header.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_SYNC_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_SYNC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "tidepool/memory/testing/explorer/cells.h"
#include "tidepool/memory/testing/explorer/shared_mutex_cell.h"
#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer {

namespace internal {

template <typename T>
constexpr ValueKind KindOf() {
  if constexpr (std::is_pointer_v<T>) {
    return ValueKind::kPointer;
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return ValueKind::kSigned;
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return ValueKind::kUnsigned;
  } else {
    return ValueKind::kBytes;
  }
}

// "... [with T = Node; ...]" or "... [T = Node]", as the compiler spells it.
template <typename T>
const char* TypeName() {
  return __PRETTY_FUNCTION__;
}

template <typename T>
Bits ToBits(T value) {
  Bits bits;
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    bits.low = static_cast<uint64_t>(value);
  } else {
    std::memcpy(static_cast<void*>(&bits), &value, sizeof(T));
  }
  return bits;
}

template <typename T>
T FromBits(const Bits& bits) {
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<T>(bits.low);
  } else {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
  }
}

// What std::atomic makes of them: signed numbers wrap.
template <typename T, typename By>
constexpr T Plus(T old, By by) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(by));
  } else {
    return static_cast<T>(old + by);
  }
}
template <typename T, typename By>
constexpr T Minus(T old, By by) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(old) - static_cast<uint64_t>(by));
  } else {
    return static_cast<T>(old - by);
  }
}

}  // namespace internal

struct Sync {
  // As std::atomic<T>, of a trivially copyable T of at most 16 bytes. One difference: compare-exchange
  // compares all bytes, padding too, which std::atomic leaves out since C++20. So T should have none.
  template <typename T>
  class Atomic;

  static void Fence(std::memory_order order, Where where = Where::current()) {
    internal::Fence(order, where);
  }

  // As std::mutex.
  class Mutex {
   public:
    Mutex(Where where = Where::current()) : cell_(where) {}
    void lock(Where where = Where::current()) { cell_.Lock(where); }
    bool try_lock(Where where = Where::current()) { return cell_.TryLock(where); }
    void unlock(Where where = Where::current()) { cell_.Unlock(where); }

   private:
    internal::MutexCell cell_;
  };

  // As std::shared_mutex.
  class SharedMutex {
   public:
    SharedMutex(Where where = Where::current()) : cell_(where) {}
    void lock(Where where = Where::current()) { cell_.Lock(where); }
    bool try_lock(Where where = Where::current()) { return cell_.TryLock(where); }
    void unlock(Where where = Where::current()) { cell_.Unlock(where); }
    void lock_shared(Where where = Where::current()) { cell_.LockShared(where); }
    bool try_lock_shared(Where where = Where::current()) { return cell_.TryLockShared(where); }
    void unlock_shared(Where where = Where::current()) { cell_.UnlockShared(where); }

   private:
    internal::SharedMutexCell cell_;
  };

  // A variable whose accesses are checked for data races.
  template <typename T>
  class Plain {
    using Read = std::conditional_t<std::is_trivially_copyable_v<T>, T, const T&>;

   public:
    Plain(Where where = Where::current()) : cell_(where, sizeof(Plain)) {}
    explicit Plain(T value, Where where = Where::current())
        : cell_(where, sizeof(Plain)), value_(std::move(value)) {}
    // A copy where that is cheap: what is read through a reference later is not checked.
    Read get(Where where = Where::current()) const {
      cell_.Get(where);
      return value_;
    }
    void set(T value, Where where = Where::current()) {
      cell_.Set(where);
      value_ = std::move(value);
    }

   private:
    mutable internal::PlainCell cell_;
    T value_{};
  };

  // Others may go first, or the calling thread goes on at once.
  static void Yield();

  // An object whose use after Delete, second Delete and missing Delete are failures. Its atomic and
  // plain variables are watched; other members are not. The memory is not used twice.
  template <typename T, typename... Arguments>
  static T* New(Arguments&&... arguments) {
    void* memory = internal::NewBlock(sizeof(T), alignof(T), internal::TypeName<T>());
    try {
      return new (memory) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
      internal::DropBlock(memory);  // there is no object that could be deleted
      throw;
    }
  }
  template <typename T>
  static void Delete(T* object, Where where = Where::current()) {
    if (object == nullptr) return;
    internal::BeginDelete(object, where);
    object->~T();
    internal::EndDelete();
  }
};

template <typename T>
class Sync::Atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  using Order = std::memory_order;
  static constexpr Order kSequential = std::memory_order_seq_cst;
  // What fetch_add takes: a number, for a pointer of elements.
  using Difference = std::conditional_t<std::is_pointer_v<T>, ptrdiff_t, T>;

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  // NOLINTNEXTLINE(google-explicit-constructor): so that arrays of them can be made
  Atomic(Where where = Where::current()) : Atomic(T(), where) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as std::atomic
  Atomic(T value, Where where = Where::current())
      : cell_(internal::ToBits(value), internal::KindOf<T>(), where) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  bool is_lock_free() const { return true; }

  T load(Order order = kSequential, Where where = Where::current()) const {
    return internal::FromBits<T>(cell_.Load(order, where));
  }
  operator T() const { return load(); }  // NOLINT(google-explicit-constructor): as std::atomic

  void store(T value, Order order = kSequential, Where where = Where::current()) {
    cell_.Store(internal::ToBits(value), order, where);
  }
  T operator=(T value) {
    store(value);
    return value;
  }

  T exchange(T value, Order order = kSequential, Where where = Where::current()) {
    return Update("exchange", order, where, [value](T) { return value; });
  }

  bool compare_exchange_weak(T& expected, T desired, Order success, Order failure,
                             Where where = Where::current()) {
    return CompareExchange(expected, desired, true, success, &failure, where);
  }
  bool compare_exchange_weak(T& expected, T desired, Order order = kSequential,
                             Where where = Where::current()) {
    return CompareExchange(expected, desired, true, order, nullptr, where);
  }
  bool compare_exchange_strong(T& expected, T desired, Order success, Order failure,
                               Where where = Where::current()) {
    return CompareExchange(expected, desired, false, success, &failure, where);
  }
  bool compare_exchange_strong(T& expected, T desired, Order order = kSequential,
                               Where where = Where::current()) {
    return CompareExchange(expected, desired, false, order, nullptr, where);
  }

  T fetch_add(Difference by, Order order = kSequential, Where where = Where::current()) {
    return Update("fetch_add", order, where, [by](T old) { return internal::Plus(old, by); });
  }
  T fetch_sub(Difference by, Order order = kSequential, Where where = Where::current()) {
    return Update("fetch_sub", order, where, [by](T old) { return internal::Minus(old, by); });
  }
  T fetch_and(T mask, Order order = kSequential, Where where = Where::current()) {
    return Update("fetch_and", order, where, [mask](T old) { return static_cast<T>(old & mask); });
  }
  T fetch_or(T mask, Order order = kSequential, Where where = Where::current()) {
    return Update("fetch_or", order, where, [mask](T old) { return static_cast<T>(old | mask); });
  }
  T fetch_xor(T mask, Order order = kSequential, Where where = Where::current()) {
    return Update("fetch_xor", order, where, [mask](T old) { return static_cast<T>(old ^ mask); });
  }
  T operator++() { return internal::Plus(fetch_add(1), 1); }
  T operator++(int) { return fetch_add(1); }
  T operator--() { return internal::Minus(fetch_sub(1), 1); }
  T operator--(int) { return fetch_sub(1); }
  T operator+=(Difference by) { return internal::Plus(fetch_add(by), by); }
  T operator-=(Difference by) { return internal::Minus(fetch_sub(by), by); }
  T operator&=(T mask) { return static_cast<T>(fetch_and(mask) & mask); }
  T operator|=(T mask) { return static_cast<T>(fetch_or(mask) | mask); }
  T operator^=(T mask) { return static_cast<T>(fetch_xor(mask) ^ mask); }

  void wait(T old, Order order = kSequential, Where where = Where::current()) const {
    cell_.Wait(internal::ToBits(old), order, where);
  }
  void notify_one(Where where = Where::current()) { cell_.Notify(false, where); }
  void notify_all(Where where = Where::current()) { cell_.Notify(true, where); }

 private:
  template <typename F>
  T Update(const char* operation, Order order, const Where& where, F function) {
    const T old = internal::FromBits<T>(cell_.BeginUpdate(operation, order, where));
    cell_.EndUpdate(internal::ToBits(static_cast<T>(function(old))));
    return old;
  }

  bool CompareExchange(T& expected, T desired, bool weak, Order success, const Order* failure,
                       const Where& where) {
    internal::Bits bits = internal::ToBits(expected);
    const bool succeeds =
        cell_.CompareExchange(bits, internal::ToBits(desired), weak, success, failure, where);
    if (!succeeds) expected = internal::FromBits<T>(bits);
    return succeeds;
  }

  mutable internal::AtomicCell cell_;
};

}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_SYNC_H_
