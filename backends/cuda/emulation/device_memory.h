// Addresses of emulated devices, what is behind them, and page-locked host memory. Internal to the
// emulation; the caller holds its lock.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_DEVICE_MEMORY_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace tidepool::cuda_emulation {

class DeviceMemory {
 public:
  static constexpr int kMaxDevices = 16;
  static constexpr int kMaxPools = 64;  // the first of them are the devices' own

  // Address ranges without memory. Null when the system has none.
  char* Reserve(size_t bytes, size_t alignment);
  bool Unreserve(char* base, size_t bytes);  // false: not one, or still mapped

  // Memory of a device: handles are had and given back, mapped behind parts of ranges.
  uint64_t Create(int device, size_t bytes);  // 0: above the capacity
  bool ReleaseHandle(uint64_t handle);
  bool Map(char* at, size_t bytes, uint64_t handle);
  bool SetAccess(char* at, size_t bytes, int device);
  void SetPoolAccess(int pool, int device) { pools_[pool].peers |= 1u << device; }
  // Of one more pool; -1: there are no more. A default pool is the number of its device.
  int CreatePool(int device);
  bool Unmap(char* at, size_t bytes);

  // Single blocks; their end lies as near to a page without access as 256-byte alignment lets it.
  // Of a pool: takes what that one has kept, and leaves it the bytes when it is freed.
  char* Allocate(int device, size_t bytes, int of_pool = -1);
  bool Free(char* data);

  char* AllocateHost(size_t bytes);
  bool FreeHost(char* data);
  bool Register(char* data, size_t bytes);  // locks memory of others
  bool Unregister(char* data);

  // Whether all bytes can be reached by kernels; with them the device.
  bool IsDevice(const void* at, size_t bytes, int* device = nullptr) const;
  // Whether that device can reach memory for which IsDevice is true.
  bool IsReachable(const void* at, size_t bytes, int device) const;
  bool TouchesDevice(const void* at, size_t bytes) const;  // any address reserved
  bool IsPinned(const void* at, size_t bytes) const;

  // Between them the memory can be read and written. Pairs nest.
  void Open();
  void Close();

  size_t used(int device) const { return used_[device]; }
  // Beside them, by the device's pools.
  size_t kept(int device) const;
  // Of a pool: in blocks, and kept beside them, which used() does not have; its device, and what it was told to keep.
  struct Pool {
    int device = 0;
    size_t used = 0, kept = 0;
    uint64_t threshold = 0;
    uint32_t peers = 0;
  };
  Pool& pool(int number) { return pools_[number]; }
  void TrimPool(int number, size_t bytes) {
    Pool& pool = pools_[number];
    const size_t most = bytes > pool.used ? bytes - pool.used : 0;
    if (pool.kept > most) pool.kept = most;
  }
  size_t pinned() const { return pinned_; }
  void set_capacity(int device, size_t bytes) { capacity_[device] = bytes; }
  size_t capacity(int device) const { return capacity_[device]; }

  DeviceMemory();

 private:
  struct Range {
    size_t bytes;
    char* block = nullptr;  // of a single block: where it begins
    int pool = -1;          // that it is of
  };
  struct Piece {  // of mapped memory
    size_t bytes;
    uint64_t handle;
    bool accessible = false;
    uint32_t peers = 0;  // that may access it, a bit each
  };
  struct Handle {
    int device;
    size_t bytes;
    bool mapped = false, released = false;
  };
  void Protect(char* at, size_t bytes, bool open);
  void MayEnd(uint64_t handle);

  std::map<char*, Range> ranges_;
  std::map<char*, char*> blocks_;  // to their ranges
  std::map<char*, Piece> pieces_;
  std::map<uint64_t, Handle> handles_;
  std::map<char*, size_t> host_;
  std::map<char*, size_t> registered_;
  uint64_t next_handle_ = 1;
  int open_ = 0;
  size_t used_[kMaxDevices] = {}, capacity_[kMaxDevices];
  Pool pools_[kMaxPools];
  int pool_count_ = kMaxDevices;
  size_t pinned_ = 0;
};

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_DEVICE_MEMORY_H_
