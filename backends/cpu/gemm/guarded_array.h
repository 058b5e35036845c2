// Test memory whose last byte is followed by an unreadable page, so that one float too many, read
// or written by whatever code (assembly included), ends the test; bytes in front are checked.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_GUARDED_ARRAY_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_GUARDED_ARRAY_H_

#include <stddef.h>
#include <stdint.h>

#include <random>

namespace tidepool::cpu {

class GuardedArray {
 public:
  // `floats` zeros. The address is a multiple of 64 bytes when the size is.
  explicit GuardedArray(size_t floats);
  ~GuardedArray();
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return floats_; }
  float& operator[](size_t i) { return data_[i]; }
  float operator[](size_t i) const { return data_[i]; }

  // Uniform in [-1, 1), bits from `random`.
  void Randomize(std::mt19937_64& random);
  void Fill(float value);
  // Whether the bytes in front of the array are as they were.
  bool FrontIntact() const;

 private:
  size_t floats_;
  size_t mapped_bytes_;
  unsigned char* mapping_;
  float* data_;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GUARDED_ARRAY_H_
