#include "tidepool/backends/cuda/emulation/emulation.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tidepool/backends/cuda/emulation/block_runner.h"

namespace tidepool::cuda_emulation {

thread_local bool in_call = false;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int captures_begun = 0;

namespace {

// Queues longer than this run on, so that work whose end nobody awaits does not pile up.
constexpr size_t kMostQueued = 4096;
// For another rank, of a tenth of a millisecond each: one that has not come after twenty seconds does not come.
constexpr int kMostWaits = 200'000;

struct sigaction before;

// Says what a wrong access is before the program ends by it.
void OnFault(int signal, siginfo_t* info, void* context) {
  // No lock: the thread that faults may hold it, and the program ends anyway.
  if (Emulation::Get().memory.TouchesDevice(info->si_addr, 1)) {
    std::fprintf(stderr, "tidepool CUDA emulation: %s touched device memory %p, which %s\n",
                 current_thread != nullptr ? "a kernel" : "the host", info->si_addr,
                 current_thread != nullptr ? "is not mapped" : "it cannot reach");
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
    return;
  }
  sigaction(signal, &before, nullptr);
}

}  // namespace

void Die(const char* format, ...) {
  std::fprintf(stderr, "tidepool CUDA emulation: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "\n");
  std::abort();
}

cudaError_t Fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

Emulation& Emulation::Get() {
  static Emulation* const emulation = new Emulation();
  return *emulation;
}

Emulation::Emulation() {
  struct sigaction action = {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
}

uint64_t Emulation::Random() {  // splitmix64 (Steele, Lea, Flood 2014)
  uint64_t z = random_ += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

CUstream_st* Emulation::NewStream(unsigned flags) {
  auto stream = std::make_unique<CUstream_st>();
  stream->device = current_device;
  stream->flags = flags;
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

CUstream_st* Emulation::Stream(cudaStream_t stream) {
  if (stream == cudaStreamPerThread) {
    thread_local CUstream_st* of_thread[16] = {};
    CUstream_st*& own = of_thread[current_device];
    if (own == nullptr) own = NewStream(cudaStreamDefault);
    return own;
  }
  if (stream == nullptr || stream == cudaStreamLegacy) {
    CUstream_st*& own = defaults_[current_device];
    if (own == nullptr) own = NewStream(cudaStreamDefault);
    return own;
  }
  for (const auto& known : streams_) {
    if (known.get() == stream) return stream;
  }
  Die("%p is not a stream", static_cast<void*>(stream));
}

void Emulation::EndStream(CUstream_st* stream) {
  RunUntil([&] { return stream->queue.empty(); }, "cudaStreamDestroy");
  if (favourite_ == stream) favourite_ = nullptr;
  std::erase_if(streams_, [&](const auto& known) { return known.get() == stream; });
}

bool Emulation::UnsafeWhileCapturing() {
  if (captures_begun == 0) return false;
  for (const auto& stream : streams_) {
    if (stream->capture != nullptr && stream->capture->mode != cudaStreamCaptureModeRelaxed) {
      stream->capture->invalid = true;
    }
  }
  return true;
}

// The default stream is ordered with all that were not made to run beside it.
void Emulation::SyncWithDefault(CUstream_st* stream) {
  if ((stream->flags & cudaStreamNonBlocking) != 0) return;
  CUstream_st* const own = defaults_[stream->device];
  if (own == nullptr) return;
  if (stream != own) {
    RunUntil([&] { return own->queue.empty(); }, "the default stream");
    return;
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    CUstream_st* const other = streams_[i].get();
    if (other->device != own->device || (other->flags & cudaStreamNonBlocking) != 0) continue;
    RunUntil([&] { return other->queue.empty(); }, "the default stream");
  }
}

void Emulation::Add(CUstream_st* stream, Work work) {
  if (stream->capture != nullptr) {
    stream->capture->nodes.push_back({std::move(work), stream->last});
    stream->last = {static_cast<int>(stream->capture->nodes.size()) - 1};
    return;
  }
  SyncWithDefault(stream);
  stream->queue.push_back({std::move(work), nullptr, nullptr});
  if (++queued_ > kMostQueued) RunSome();
}

void Emulation::AddDeviceWork(CUstream_st* stream, Work work) {
  Add(stream, [this, work = std::move(work)]() mutable {
    if (!lost) work();
  });
}

void Emulation::Record(CUstream_st* stream, CUevent_st* event) {
  event->mark = std::make_shared<Mark>();
  if (stream->capture != nullptr) {
    event->mark->capture = stream->capture;
    event->mark->nodes = stream->last;
    return;
  }
  SyncWithDefault(stream);
  stream->queue.push_back({nullptr, event->mark, nullptr});
  ++queued_;
}

cudaError_t Emulation::Wait(CUstream_st* stream, CUevent_st* event) {
  if (event->mark == nullptr) return cudaSuccess;  // never recorded
  if (event->mark->capture != nullptr) {
    if (stream->capture == nullptr) {
      if (!stream->queue.empty()) {
        // Allowed: what the stream captures begins when its queue is done.
        RunUntil([&] { return stream->queue.empty(); }, "a capture");
      }
      stream->capture = event->mark->capture;
      stream->last.clear();
    } else if (stream->capture != event->mark->capture) {
      return cudaErrorStreamCaptureIsolation;
    }
    for (int node : event->mark->nodes) {
      if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) {
        stream->last.push_back(node);
      }
    }
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event->mark->passed) return cudaSuccess;
  stream->queue.push_back({nullptr, nullptr, event->mark});
  ++queued_;
  return cudaSuccess;
}

bool Emulation::IsReady(const CUstream_st& stream) const {
  if (stream.queue.empty()) return false;
  const Item& item = stream.queue.front();
  return item.wait == nullptr || item.wait->passed;
}

bool Emulation::RunOne() {
  // For a while one stream may run ahead of the others.
  CUstream_st* chosen = nullptr;
  if (favourite_ != nullptr && IsReady(*favourite_) && Random() % 4 != 0) {
    chosen = favourite_;
  } else {
    std::vector<CUstream_st*> ready;
    for (const auto& stream : streams_) {
      if (IsReady(*stream)) ready.push_back(stream.get());
    }
    if (ready.empty()) return false;
    chosen = favourite_ = ready[Random() % ready.size()];
  }
  Item item = std::move(chosen->queue.front());
  chosen->queue.pop_front();
  --queued_;
  if (item.work) item.work();
  if (item.record) item.record->passed = true;
  return true;
}

void Emulation::RunUntil(const std::function<bool()>& done, const char* who) {
  if (done()) return;
  memory.Open();
  for (int waited = 0; !done();) {
    if (RunOne()) continue;
    const bool others_come = std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) {
      return !stream->queue.empty() && stream->queue.front().wait != nullptr &&
             stream->queue.front().wait->is_others;
    });
    if (!others_come || ++waited > kMostWaits) Die("%s waits for what was never queued", who);
    // As on a device, the thread waits; another rank's thread queues its part meanwhile.
    memory.Close();
    mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    mutex.lock();
    memory.Open();
  }
  memory.Close();
}

void Emulation::RunSome() {
  if (queued_ == 0) return;
  memory.Open();
  for (size_t n = Random() % (queued_ + 1); n > 0 && RunOne(); --n) {
  }
  memory.Close();
}

void Emulation::RunAll() {
  if (queued_ == 0) return;
  memory.Open();
  while (RunOne()) {
  }
  memory.Close();
}

cudaError_t QueueKernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Work body,
                        std::initializer_list<const void*> pointers) {
  Emulation& emulation = Emulation::Get();
  CallLock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (EmulatedCuda::Get().call_faults().Next()) return Fail(cudaErrorLaunchOutOfResources);
  CUstream_st* const queue = emulation.Stream(stream);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 || block.z > 64 ||
      grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
    return Fail(cudaErrorInvalidConfiguration);
  }
  if (shared_bytes > 227 * 1024) return Fail(cudaErrorInvalidValue);
  int number = 0;
  for (const void* pointer : pointers) {
    int device = queue->device;
    if (pointer != nullptr && !emulation.memory.IsPinned(pointer, 1) &&
        (!emulation.memory.IsDevice(pointer, 0, &device) || device != queue->device)) {
      Die("pointer %d of a kernel's arguments, %p, is not memory that device %d can reach", number,
          pointer, queue->device);
    }
    ++number;
  }
  emulation.Add(queue, [=, &emulation, body = std::move(body)]() mutable {
    if (emulation.lost || EmulatedCuda::Get().kernel_faults().Next()) {
      emulation.lost = true;
      return;
    }
    BlockRunner::Get().Run(
        {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes}, emulation.Random(),
        [](void* work) { (*static_cast<Work*>(work))(); }, &body);
    ++emulation.counters.kernels;
  });
  return cudaSuccess;
}

}  // namespace tidepool::cuda_emulation

namespace tidepool {

using cuda_emulation::Emulation;

EmulatedCuda& EmulatedCuda::Get() {
  static EmulatedCuda* const emulated = new EmulatedCuda();
  return *emulated;
}

void EmulatedCuda::set_devices(int devices) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().devices = devices;
}
void EmulatedCuda::set_capacity(size_t bytes, int device) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().memory.set_capacity(device, bytes);
}
void EmulatedCuda::set_seed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().set_seed(seed);
}
void EmulatedCuda::set_lost(bool lost) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().lost = lost;
}
void EmulatedCuda::set_context_bytes(size_t bytes) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().context_bytes = bytes;
}
void EmulatedCuda::set_allocation_error(int error) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().allocation_error = static_cast<cudaError_t>(error);
}
void EmulatedCuda::set_peers(bool peers) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().peers = peers;
}
void EmulatedCuda::set_copies_together(bool known) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().copies_together = known;
}
void EmulatedCuda::set_fused_products(bool known) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().fused_products = known;
}
size_t EmulatedCuda::used_bytes(int device) const {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  return Emulation::Get().memory.used(device);
}
size_t EmulatedCuda::kept_bytes(int device) const {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  return Emulation::Get().memory.kept(device);
}
size_t EmulatedCuda::pinned_bytes() const {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  return Emulation::Get().memory.pinned();
}
EmulatedCuda::Counters EmulatedCuda::counters() const {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  return Emulation::Get().counters;
}
bool EmulatedCuda::in_call() { return cuda_emulation::in_call; }
void EmulatedCuda::Finish() {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  Emulation::Get().RunAll();
}

}  // namespace tidepool
