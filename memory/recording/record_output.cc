#include "tidepool/memory/recording/record_output.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace tidepool::record {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// No signal's handler runs and no thread is cancelled behind it; errno is the caller's.
class Lock {
 public:
  Lock() noexcept : errno_(errno) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    pthread_mutex_lock(&mutex);
  }
  ~Lock() {
    pthread_mutex_unlock(&mutex);
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int errno_;
  sigset_t signals_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

int64_t ClockNanoseconds(clockid_t clock) noexcept {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// "<path>.<process>". False: too long.
bool AppendProcess(char (&path)[4096]) noexcept {
  size_t length = std::strlen(path);
  char digits[24];
  int count = 0;
  for (auto id = static_cast<unsigned>(getpid()); id > 0; id /= 10) {
    digits[count++] = static_cast<char>('0' + id % 10);
  }
  if (length + static_cast<size_t>(count) + 2 > sizeof(path)) return false;
  path[length++] = '.';
  while (count > 0) path[length++] = digits[--count];
  path[length] = '\0';
  return true;
}

// Once in a process: what is done when threads end and in children.
struct Registered {
  pthread_key_t key;
  bool has_key;
};

}  // namespace

struct Output::ThreadBlock {
  ThreadBlock* next = nullptr;
  std::atomic<bool> taken{true};
  uint32_t thread = 0;
  // Of the record that it has events of; by its thread, and under the lock.
  std::atomic<uint64_t> session{0};
  BlockBuffer<kBlockBytes> events;
};

namespace {

thread_local constinit void* block_here = nullptr;
// Of a thread whose block has ended, so that it goes on under its number.
thread_local constinit uint32_t thread_here = UINT32_MAX;
thread_local constinit bool in_record = false;  // what is asked of malloc here is our own

const Registered& RegisterOnce(void (*thread_ends)(void*), void (*in_child)()) noexcept {
  static constinit Registered registered = {};
  static constinit bool done = false;
  if (!done) {
    done = true;
    registered.has_key = pthread_key_create(&registered.key, thread_ends) == 0;
    pthread_atfork(nullptr, nullptr, in_child);
  }
  return registered;
}

}  // namespace

Output& Output::Global() noexcept {
  static constinit Output output;
  return output;
}

int64_t Output::Now() const noexcept {
  return ClockNanoseconds(CLOCK_MONOTONIC_COARSE) - __atomic_load_n(&began_, __ATOMIC_RELAXED);
}

bool Output::is_of_this_process() const noexcept {
  return process_.load(std::memory_order_relaxed) == static_cast<int>(getpid());
}

int Output::Open(const char* path, Source source) noexcept {
  const Lock lock;
  if (is_open()) return EBUSY;
  source_ = source;
  if (std::strlen(path) >= sizeof(wanted_path_)) return ENAMETOOLONG;
  std::memmove(wanted_path_, path, std::strlen(path) + 1);
  opens_at_event_.store(false, std::memory_order_relaxed);
  return OpenAt(wanted_path_, /*own_name=*/false);
}

int Output::OpenAt(const char* path, bool own_name) noexcept {
  std::memmove(path_, path, std::strlen(path) + 1);
  if (own_name && !AppendProcess(path_)) return ENAMETOOLONG;
  const int error = file_.Open(path_);
  if (error == EWOULDBLOCK && !own_name) return OpenAt(path, /*own_name=*/true);
  if (error != 0) return error;
  RegisterOnce(&ThreadEnds, &InChild);
  FileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.version = kVersion;
  header.source = static_cast<uint32_t>(source_);
  header.process = static_cast<uint64_t>(getpid());
  header.began = ClockNanoseconds(CLOCK_REALTIME);
  header.checksum = Crc32(0, &header, offsetof(FileHeader, checksum));
  __atomic_store_n(&began_, ClockNanoseconds(CLOCK_MONOTONIC_COARSE), __ATOMIC_RELAXED);
  next_number_.store(1, std::memory_order_relaxed);
  threads_.store(0, std::memory_order_relaxed);
  for (auto& word : names_) word.store(0, std::memory_order_relaxed);
  process_.store(static_cast<int>(getpid()), std::memory_order_relaxed);
  const int written = Write(reinterpret_cast<const char*>(&header), sizeof(header));
  if (written == 0) session_.fetch_add(1, std::memory_order_release);
  return written;
}

// Under the lock. What cannot be written ends the record, behind its last whole block.
int Output::Write(const char* data, size_t bytes) noexcept {
  const int error = file_.Write(data, bytes);
  if (error != 0) StopLocked();
  return error;
}

void Output::StopLocked() noexcept {
  if (is_open()) session_.fetch_add(1, std::memory_order_release);
  file_.Close();
}

// Under the lock. The block is empty then.
void Output::WriteBlock(ThreadBlock& block, BlockType type) noexcept {
  const bool is_of_this =
      block.session.load(std::memory_order_relaxed) == session_.load(std::memory_order_relaxed);
  const size_t used = block.events.used();
  if (used > 0 && is_of_this && file_.is_open()) {
    size_t bytes;
    const char* const data = block.events.Finish(type, block.thread, used, &bytes);
    Write(data, bytes);
  }
}

void Output::Close() noexcept {
  const Lock lock;
  opens_at_event_.store(false, std::memory_order_relaxed);
  if (!is_open()) return;
  const uint64_t session = session_.load(std::memory_order_relaxed);
  for (ThreadBlock* b = blocks_.load(std::memory_order_acquire); b != nullptr; b = b->next) {
    WriteBlock(*b, BlockType::kEvents);
    if (!file_.is_open()) return;
  }
  session_.store(session + 1, std::memory_order_release);
  BlockHeader end = {kBlockMarker, static_cast<uint32_t>(BlockType::kEnd), 0, 0, 0, Now(), 0, 0};
  end.first_number = next_number_.load(std::memory_order_relaxed);
  end.checksum = Crc32(0, &end, offsetof(BlockHeader, checksum));
  Write(reinterpret_cast<const char*>(&end), sizeof(end));
  StopLocked();
}

// The calling thread's, with room for an event of the record that is open. Null: none is, or this is
// what recording itself asks for.
inline Output::ThreadBlock* Output::Here() noexcept {
  auto* const block = static_cast<ThreadBlock*>(block_here);
  if (block != nullptr &&
      block->session.load(std::memory_order_relaxed) == session_.load(std::memory_order_relaxed) &&
      block->events.has_room() && !in_record) [[likely]] {
    return block;
  }
  return HereSlowly();
}

[[gnu::noinline]] Output::ThreadBlock* Output::HereSlowly() noexcept {
  if (in_record) return nullptr;
  if (!is_open() && !opens_at_event_.load(std::memory_order_relaxed)) return nullptr;
  struct InRecord {
    InRecord() { in_record = true; }
    ~InRecord() { in_record = false; }
  } const in_record_here;
  const Lock lock;
  if (opens_at_event_.exchange(false, std::memory_order_relaxed) && !is_open()) {
    OpenAt(wanted_path_, /*own_name=*/true);
  }
  if (!is_open()) return nullptr;
  auto* block = static_cast<ThreadBlock*>(block_here);
  if (block == nullptr) {
    for (block = blocks_.load(std::memory_order_acquire); block != nullptr; block = block->next) {
      bool taken = false;
      if (block->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) break;
    }
    if (block == nullptr) {
      void* const memory = mmap(nullptr, sizeof(ThreadBlock), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return nullptr;
      block = new (memory) ThreadBlock;
      block->next = blocks_.load(std::memory_order_relaxed);
      blocks_.store(block, std::memory_order_release);
    }
    block->session.store(0, std::memory_order_relaxed);
    block_here = block;
    const Registered& registered = RegisterOnce(&ThreadEnds, &InChild);
    if (registered.has_key) pthread_setspecific(registered.key, block);
  }
  const uint64_t session = session_.load(std::memory_order_relaxed);
  if (block->session.load(std::memory_order_relaxed) == session) {
    WriteBlock(*block, BlockType::kEvents);
    block->events.Clear();
    return is_open() ? block : nullptr;
  }
  // The first event of this thread in this record, or after its end had been told.
  thread_local constinit uint64_t numbered_in = 0;
  if (numbered_in != session) {
    numbered_in = session;
    thread_here = threads_.fetch_add(1, std::memory_order_relaxed);
  }
  block->thread = thread_here;
  block->events.Clear();
  block->session.store(session, std::memory_order_release);
  return block;
}

void Output::ThreadEnds(void* ended) noexcept {
  auto& block = *static_cast<ThreadBlock*>(ended);
  const Lock lock;
  Global().WriteBlock(block, BlockType::kEvents);
  block.events.Clear();
  block.session.store(0, std::memory_order_relaxed);
  block_here = nullptr;  // later destructors of this thread may still make events
  block.taken.store(false, std::memory_order_release);
}

// What the parent had not written yet is the parent's. Its other threads, of which one may have held
// the lock, are not here.
void Output::InChild() noexcept {
  Output& output = Global();
  pthread_mutex_init(&mutex, nullptr);
  in_record = false;
  const bool was_open = output.is_open();
  output.file_.Close();
  if (was_open) output.session_.fetch_add(1, std::memory_order_relaxed);
  for (ThreadBlock* b = output.blocks_.load(std::memory_order_acquire); b != nullptr; b = b->next) {
    if (b != block_here) b->taken.store(false, std::memory_order_relaxed);
  }
  if (was_open) output.opens_at_event_.store(true, std::memory_order_relaxed);
}

// The caller may have told a name before the record that the block is of began; looked at behind
// Here(), which says which one that is.
inline uint32_t Output::Known(uint32_t name) const noexcept {
  return name == 0 || HasName(name) ? name : 0;
}

void Output::Allocated(uint64_t key, uint64_t bytes, unsigned alignment_log2,
                       const Context& context) noexcept {
  ThreadBlock* const block = Here();
  if (block == nullptr) return;
  const Context known = {Known(context.owner), Known(context.device), context.kind};
  const uint64_t number = next_number_.fetch_add(1, std::memory_order_relaxed);
  block->events.Allocate(number, Now(), key, bytes, alignment_log2, known);
}

void Output::Freed(uint64_t key) noexcept {
  ThreadBlock* const block = Here();
  if (block == nullptr) return;
  block->events.Free(next_number_.fetch_add(1, std::memory_order_relaxed), Now(), key);
}

void Output::Cycle(bool begins, uint32_t name, uint64_t generation) noexcept {
  ThreadBlock* const block = Here();
  if (block == nullptr) return;
  const uint32_t known = Known(name);
  block->events.Cycle(next_number_.fetch_add(1, std::memory_order_relaxed), Now(), begins, known,
                      generation);
}

void Output::WasLive(uint64_t key, uint64_t bytes, unsigned alignment_log2,
                     const Context& context) noexcept {
  ThreadBlock* const block = Here();
  if (block == nullptr) return;
  const uint64_t number = next_number_.fetch_add(1, std::memory_order_relaxed);
  block->events.Allocate(number, Now(), key, bytes, alignment_log2, context);
  const Lock lock;
  WriteBlock(*block, BlockType::kLive);
  block->events.Clear();
}

void Output::Name(uint32_t id, const char* text, size_t length) noexcept {
  if (length > kMostNameBytes) length = kMostNameBytes;
  char block[sizeof(BlockHeader) + 16 + kMostNameBytes];
  char* p = block + sizeof(BlockHeader);
  p = BlockBuffer<kBlockBytes>::Put(p, id);
  p = BlockBuffer<kBlockBytes>::Put(p, length);
  std::memcpy(p, text, length);
  p += length;
  const auto payload = static_cast<size_t>(p - block) - sizeof(BlockHeader);
  BlockHeader header = {kBlockMarker,
                        static_cast<uint32_t>(BlockType::kNames),
                        static_cast<uint32_t>(payload),
                        0,
                        0,
                        Now(),
                        0,
                        0};
  const uint32_t crc = Crc32(0, &header, offsetof(BlockHeader, checksum));
  header.checksum = Crc32(crc, block + sizeof(header), payload);
  std::memcpy(block, &header, sizeof(header));
  const Lock lock;
  if (!file_.is_open() || HasName(id)) return;
  if (Write(block, sizeof(header) + payload) != 0) return;
  names_[id / 64].fetch_or(uint64_t{1} << (id % 64), std::memory_order_release);
}

}  // namespace tidepool::record
