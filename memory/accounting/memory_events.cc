#include "tidepool/memory/accounting/memory_events.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

struct Entry {
  std::function<void(const MemoryEvent&)> callback;
  int running = 0;  // calls on any thread; under the table's lock
};

struct Table {
  std::mutex mutex;
  std::condition_variable returned;
  // Guarded by it:
  std::map<uint64_t, std::shared_ptr<Entry>> entries;
  uint64_t next_number = 1;
};

Table& TheTable() {
  static Table* const table = [] {
    static constinit const ForkHandlers handlers{
        [] { TheTable().mutex.lock(); }, [] { TheTable().mutex.unlock(); },
        [] {
          // Calls on threads that are not here never return.
          for (auto& [number, entry] : TheTable().entries) {
            entry->running = 0;
          }
          new (&TheTable().returned) std::condition_variable;
          TheTable().mutex.unlock();
        }};
    HandleFork(ForkLevel::kMemoryEvents, &handlers);
    return new Table;  // outlives every static callback
  }();
  return *table;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const Table& at_start = TheTable();

std::string NameOf(const MemoryOwner* owner) {
  const std::string tag = owner->Tag();
  return OneLine(tag.empty() ? owner->Path() : absl::StrCat(owner->Path(), " #", tag));
}

// Those that were there when it began; each is found anew, as they come and go meanwhile.
void CallAll(const MemoryEvent& event) noexcept {
  Table& table = TheTable();
  std::unique_lock<std::mutex> lock(table.mutex);
  const uint64_t end = table.next_number;
  for (uint64_t last = 0;;) {
    const auto next = table.entries.upper_bound(last);
    if (next == table.entries.end() || next->first >= end) return;
    last = next->first;
    std::shared_ptr<Entry> entry = next->second;
    ++entry->running;
    lock.unlock();
    internal::CallBack([&] { entry->callback(event); });
    lock.lock();
    if (entry->running > 0) --entry->running;  // 0 in a child that was forked within the call
    table.returned.notify_all();
    lock.unlock();
    entry.reset();  // what the callback kept goes without the lock
    lock.lock();
  }
}

}  // namespace

namespace internal {

void TellMemoryEvents(const MemoryEvent* events, int count) noexcept;  // for memory_budget.cc

std::atomic<int> memory_event_callbacks{0};
thread_local constinit bool in_memory_event = false;
constinit std::atomic<void (*)(const MemoryEvent& event) noexcept> keep_level{nullptr};
constinit std::atomic<void (*)(void (*call)(const MemoryEvent&) noexcept) noexcept>
    tell_kept_levels{nullptr};

void TellMemoryEvents(const MemoryEvent* events, int count) noexcept {
  if (in_memory_event) {
    const auto keep = keep_level.load(std::memory_order_acquire);
    if (keep == nullptr) return;
    for (int i = 0; i < count; ++i) {
      if (events[i].kind == MemoryEvent::Kind::kLevel) keep(events[i]);
    }
    return;
  }
  in_memory_event = true;
  for (int i = 0; i < count; ++i) {
    MemoryEvent told = events[i];
    if (told.request.owner == nullptr) told.request.owner = &MemoryOwner::Current();
    CallAll(told);
  }
  if (const auto tell = tell_kept_levels.load(std::memory_order_acquire); tell != nullptr)
    tell(&CallAll);
  in_memory_event = false;
}

void TellMemoryEventSlowly(const MemoryEvent& event) noexcept { TellMemoryEvents(&event, 1); }

}  // namespace internal

MemoryEventCallback::MemoryEventCallback(std::function<void(const MemoryEvent&)> callback) {
  if (callback == nullptr) {
    ThrowInvalidArgument("memory events: found no callback, expected a function to call");
  }
  auto entry = std::make_shared<Entry>(Entry{std::move(callback)});
  Table& table = TheTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  number_ = table.next_number;
  table.entries.emplace(number_, std::move(entry));
  ++table.next_number;
  internal::memory_event_callbacks.fetch_add(1, std::memory_order_relaxed);
}

MemoryEventCallback::~MemoryEventCallback() {
  Table& table = TheTable();
  std::unique_lock<std::mutex> lock(table.mutex);
  const auto node = table.entries.extract(number_);
  const Entry& entry = *node.mapped();
  internal::memory_event_callbacks.fetch_sub(1, std::memory_order_relaxed);
  if (!internal::InCallback()) {
    table.returned.wait(lock, [&] { return entry.running == 0; });
  }
  lock.unlock();  // before the node goes
}

std::string MemoryEvent::ToString() const {
  const MemoryOwner* const owner =
      request.owner != nullptr ? request.owner : &MemoryOwner::Current();
  const std::string device = DeviceName(request.device);
  switch (kind) {
    case Kind::kLevel:
      return absl::StrCat("memory level of ",
                          budget == nullptr ? "the process"
                          : budget->parent() == nullptr
                              ? absl::StrCat("device ", device)
                              : absl::StrCat("owner [", NameOf(budget), "] on ", device),
                          " is ", MemoryLevelName(level), ", was ", MemoryLevelName(previous), ": ",
                          taken_bytes, " of ", limit_bytes, " bytes are taken");
    case Kind::kReclaimBegins:
      return absl::StrCat("memory is taken back: [", NameOf(owner), "] needs ", request.bytes,
                          " bytes on ", device, " for ", request.what, ", ", wanted_bytes,
                          " are missing");
    case Kind::kReclaimEnds:
      return absl::StrCat("memory was taken back: ", reclaimed_bytes, " bytes of ", wanted_bytes,
                          " for [", NameOf(owner), "] on ", device, ", ", missing_bytes,
                          " are missing");
    case Kind::kRefused:
      break;
  }
  return absl::StrCat("memory was refused by ", std::string(policy), ": ", std::string(message));
}

void ThrowOutOfMemory(const MemoryRequest& request, std::string_view policy, std::string message,
                      std::string report) {
  MemoryEvent event{MemoryEvent::Kind::kRefused, request};
  event.policy = policy;
  event.message = message;
  event.report = report;
  TellMemoryEvent(event);
  throw OutOfMemoryError(std::move(message), std::move(report));
}

}  // namespace tidepool
