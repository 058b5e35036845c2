#include "tidepool/backends/cpu/gemm/guarded_array.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tidepool/memory/error.h"

namespace tidepool::cpu {
namespace {
constexpr unsigned char kFront = 0xa5;
}

GuardedArray::GuardedArray(size_t floats) : floats_(floats) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = floats * sizeof(float);
  const size_t readable = (bytes / page + 2) * page;
  mapped_bytes_ = readable + page;
  void* mapping =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) ThrowResourceExhausted("GuardedArray: mmap failed");
  mapping_ = static_cast<unsigned char*>(mapping);
  mprotect(mapping_ + readable, page, PROT_NONE);
  data_ = reinterpret_cast<float*>(mapping_ + readable - bytes);
  std::fill(mapping_, reinterpret_cast<unsigned char*>(data_), kFront);
}

GuardedArray::~GuardedArray() { munmap(mapping_, mapped_bytes_); }

void GuardedArray::Randomize(std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (size_t i = 0; i < floats_; ++i) data_[i] = uniform(random);
}

void GuardedArray::Fill(float value) { std::fill(data_, data_ + floats_, value); }

bool GuardedArray::FrontIntact() const {
  const unsigned char* end = reinterpret_cast<const unsigned char*>(data_);
  return std::all_of(static_cast<const unsigned char*>(mapping_), end,
                     [](unsigned char byte) { return byte == kFront; });
}

}  // namespace tidepool::cpu
