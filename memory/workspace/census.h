// Census<Member, Group>: everything of one kind that there is, in groups of one id on one device, for
// whoever watches all of it.
//
// Ids repeat (a thread's own workspace has the same one on every thread) and come again, so what is told
// is a group's: numbers of now are summed over its members, counters over those that are gone as well. So
// a counter never falls, as whoever takes its rate needs it. A group stays when its last member is gone;
// beyond `most_empty` of such the one that has been empty for longest is added to the group "(others)" of its
// device.
//
// A member is read under the lock, after Join() and before Leave(): it is kept from ending meanwhile and by
// nothing else, so a census keeps nothing alive. Group has members `std::string id`, `Device device`, is
// copied, and `add` adds a member to it: `alive`, or its counters alone when it leaves.
//
// fork() takes the lock, and that of each member where `add` takes one, so that a child can read whatever
// other threads were doing.
//
// Threads: any. Cost: joining and leaving a lock and a search, reading a lock for as long as all members take;
// what members do meanwhile costs nothing.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CENSUS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CENSUS_H_

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tidepool/memory/device.h"

namespace tidepool::internal {

template <typename Member, typename Group>
class Census {
 public:
  using Add = void (*)(Member& member, bool alive, Group* group);
  // The lock of a member that `add` takes. Who holds it waits for no other member's.
  struct MemberLock {
    void (*lock)(Member& member) = nullptr;
    void (*unlock)(Member& member) = nullptr;
  };
  static constexpr char kOthers[] = "(others)";

  Census(Add add, void (*add_groups)(const Group& gone, Group* sum), size_t most_empty,
         MemberLock member_lock = {})
      : add_(add), add_groups_(add_groups), most_empty_(most_empty), member_lock_(member_lock) {}
  Census(const Census&) = delete;
  Census& operator=(const Census&) = delete;

  // Throws std::bad_alloc; nothing has changed for whoever reads.
  void Join(Member* member, const std::string& id, Device device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    FindOrMake(kOthers, device);  // so that leaving needs no memory
    Entry& entry = FindOrMake(id, device);
    entry.members.insert(member);
    entry.used = true;
    busy_.splice(busy_.end(), entry.list(*this), entry.place);
    entry.is_empty = false;
  }

  // What has joined under that id on that device.
  void Leave(Member* member, std::string_view id, Device device) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = entries_.find(KeyView(id, device))->second;
    add_(*member, /*alive=*/false, &entry.gone);
    entry.members.erase(member);
    if (!entry.members.empty() || entry.gone.id == kOthers) return;
    empty_.splice(empty_.end(), busy_, entry.place);
    entry.is_empty = true;
    if (empty_.size() > most_empty_) Forget(*empty_.front());
  }

  // By id, then device.
  std::vector<Group> Read() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Group> groups;
    groups.reserve(entries_.size());
    for (auto& [key, entry] : entries_) {
      if (!entry.used) continue;
      Group& group = groups.emplace_back(entry.gone);
      for (Member* const member : entry.members) add_(*member, /*alive=*/true, &group);
    }
    return groups;
  }

  void LockForFork() {
    mutex_.lock();
    ForEachMember(member_lock_.lock);
  }
  void UnlockAfterFork() {
    ForEachMember(member_lock_.unlock);
    mutex_.unlock();
  }

 private:
  struct Entry;
  using Entries = std::list<Entry*>;
  struct Entry {
    Group gone;  // the counters of members that have left
    std::set<Member*> members;
    bool used = false;  // it has, or had, members
    bool is_empty = false;
    typename Entries::iterator place;

    Entries& list(Census& census) { return is_empty ? census.empty_ : census.busy_; }
  };
  using Key = std::tuple<std::string, int, int>;
  using View = std::tuple<std::string_view, int, int>;
  struct Less {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return View(a) < View(b);
    }
  };

  void ForEachMember(void (*function)(Member& member)) {
    if (function == nullptr) return;
    for (auto& [key, entry] : entries_) {
      for (Member* const member : entry.members) function(*member);
    }
  }

  static View KeyView(std::string_view id, Device device) {
    return {id, device.type.number(), device.index};
  }

  Entry& FindOrMake(const std::string& id, Device device) {
    const View key = KeyView(id, device);
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
    Entries place(1);
    const auto made = entries_.try_emplace(Key(id, std::get<1>(key), std::get<2>(key))).first;
    Entry& entry = made->second;
    try {
      entry.gone.id = id;
    } catch (...) {
      entries_.erase(made);
      throw;
    }
    entry.gone.device = device;
    entry.place = place.begin();
    *entry.place = &entry;
    busy_.splice(busy_.end(), place);
    return entry;
  }

  void Forget(Entry& entry) noexcept {
    const Device device = entry.gone.device;
    Entry& others = entries_.find(KeyView(kOthers, device))->second;
    add_groups_(entry.gone, &others.gone);
    others.used = true;
    empty_.erase(entry.place);
    entries_.erase(entries_.find(KeyView(entry.gone.id, device)));
  }

  const Add add_;
  void (*const add_groups_)(const Group& gone, Group* sum);
  const size_t most_empty_;
  const MemberLock member_lock_;
  std::mutex mutex_;
  // Guarded by it:
  std::map<Key, Entry, Less> entries_;
  Entries busy_;   // with members, or new
  Entries empty_;  // the one that has been empty for longest comes first
};

// One number of a Stats. Counters only ever grow.
template <typename Stats>
struct StatsField {
  size_t Stats::*value;
  bool is_counter;
  const char* name;  // "cycles"
  const char* help;  // a sentence
};

// Adds each of `fields`, or the counters alone.
template <typename Stats, size_t kFields>
void AddStats(const StatsField<Stats> (&fields)[kFields], const Stats& from, bool counters_only,
              Stats* to) {
  for (const StatsField<Stats>& field : fields) {
    if (field.is_counter || !counters_only) to->*field.value += from.*field.value;
  }
}

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CENSUS_H_
