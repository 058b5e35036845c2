// Sums whose bits do not depend on the order of what was added, so that evaluations of threads and
// ranks merge to what one pass gives.
#ifndef TIDEPOOL_EVAL_SUMS_H_
#define TIDEPOOL_EVAL_SUMS_H_

#include <array>
#include <cstdint>

namespace tidepool {

class StateReader;
class StateWriter;

// Of weights and shares: fixed point with 64 bits behind the point. Whole numbers and f32 numbers
// of at least 2^-40 are added exactly, others rounded down to 2^-64.
class WeightSum {
  __extension__ typedef __int128 Fixed;

 public:
  static constexpr double kLargestWeight = 1 << 20;  // so that 2^43 of them fit, 2^28 in a state

  // `count` weights of 1.
  static WeightSum Of(int64_t count) {
    WeightSum sum;
    sum.bits_ = static_cast<Fixed>(count) << 64;
    return sum;
  }
  // From 0 to kLargestWeight.
  void Add(double weight);
  // Adds and takes away what another sum has; what is taken was added before.
  void Merge(const WeightSum& other) { bits_ += other.bits_; }
  void Remove(const WeightSum& part) { bits_ -= part.bits_; }
  // Whether nothing was added, or only weights of 0.
  bool IsZero() const { return bits_ == 0; }
  // The nearest.
  double Value() const { return static_cast<double>(bits_) * 0x1p-64; }

  // 16 bytes of an evaluation's Serialize().
  void Write(StateWriter& writer) const;
  void Read(StateReader& reader);

 private:
  Fixed bits_ = 0;
};

// Of any finite numbers, exactly: all bits that a double can have, in digits of 32 bits (R. Neal,
// "Fast exact summation using small and large superaccumulators", 2015). 568 bytes.
class ExactSum {
 public:
  // Finite, and so must be the products. A product adds what rounding it takes away as well.
  void Add(double number);
  void AddProduct(double a, double b);
  void AddProduct(double a, double b, double c);
  void Merge(const ExactSum& other);
  // The nearest double; of results below 2^-1000 the nearest but one.
  double Value() const;
  // What Value() leaves out: the sum is Value() + Rest() to 106 bits.
  double Rest() const;

  // All digits, for an evaluation's Serialize().
  void Write(StateWriter& writer) const;
  void Read(StateReader& reader);

 private:
  static constexpr int kDigits = 70;
  void Carry();

  std::array<int64_t, kDigits> digits_{};  // digit i counts 2^(32 i - 1074)
  int64_t since_carry_ = 0;                // terms since all digits but the last were 0 to 2^32 - 1
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_SUMS_H_
