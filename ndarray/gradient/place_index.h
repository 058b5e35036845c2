// Things that lie somewhere in a buffer, by where: whoever asks which of them share bytes with a view looks at few, however many there
// are, and whatever their order was when they came.
//
// Where none lies between elements of another their first bytes tell. Columns of a matrix do: each begins before the one beside it
// ends. They are sorted by where they lie in the matrix's row instead, and where two have the same place there, as columns of its
// upper and lower half, by their first bytes. What comes in rows of another length is in a list of its own; a few of those, and what
// fits none (tiles of three axes) is looked at each time.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_PLACE_INDEX_H_
#define TIDEPOOL_NDARRAY_GRADIENT_PLACE_INDEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "tidepool/ndarray/gradient/places.h"

namespace tidepool {

// `T` has a member `where`, Places, which stays what and where it is until Remove() or Clear(). Threads: one.
template <typename T>
class PlaceIndex {
 public:
  // Calls visit(item) for those that may share a byte with `where` until it says true; whether it did. Nothing is added or removed
  // meanwhile.
  template <typename Visit>
  bool VisitOverlapping(const Places& where, const Visit& visit) const {
    if (VisitLine(base_.items.begin(), base_.items.end(), base_.is_sorted, where, visit))
      return true;
    for (const Rows& rows : rows_) {
      if (VisitIn(rows, where, visit)) return true;
    }
    return false;
  }

  // The first that may share a byte with it; null: none does.
  T* FindOverlapping(const Places& where) const {
    T* found = nullptr;
    VisitOverlapping(where, [&](T& item) {
      found = &item;
      return true;
    });
    return found;
  }

  // Where it throws nothing was added.
  void Add(T& item) {
    if (AddIfItFits(base_, item)) return;
    for (Rows& rows : rows_) {
      if (!rows.items.empty() && AddIfItFits(rows, item)) return;
    }
    if (Rows* const rows = NewRowsFor(item.where); rows != nullptr && AddIfItFits(*rows, item)) {
      return;
    }
    InsertAt(base_, Find(base_, 0, item.where), item);
    base_.is_sorted = false;
  }

  // Of one that was added.
  void Remove(T& item) {
    if (RemoveFrom(base_, item)) return;
    for (Rows& rows : rows_) {
      if (RemoveFrom(rows, item)) return;
    }
  }

  // Keeps the memory.
  void Clear() {
    Clear(base_);
    for (Rows& rows : rows_) Clear(rows);
  }

  // How many items were looked at, for tests.
  int64_t compared() const { return compared_; }

 private:
  using Items = std::vector<T*>;
  // What comes in rows of `pitch` bytes, counted from `origin`, by its place in the row and then by its first byte; in no rows, where
  // that is 0, by its first byte alone.
  struct Rows {
    int64_t pitch = 0, origin = 0;
    int64_t begin = 0, end = 0;  // no item has bytes elsewhere
    // Places in the row are the same or apart, and those of one place lie one behind the other.
    bool is_sorted = true;  // always, where they are rows
    Items items;
  };
  // Of rows of different lengths in one buffer.
  static constexpr size_t kMostRows = 16;

  static int64_t PlaceOf(const Rows& rows, const Places& where) {
    if (rows.pitch == 0) return 0;
    const int64_t place = (where.begin() - rows.origin) % rows.pitch;
    return place < 0 ? place + rows.pitch : place;
  }
  // How much of the row it has; 0: it is not in one row's part.
  static int64_t RunOf(const Rows& rows, const Places& where) {
    return rows.pitch == 0 ? 1 : where.RunOf(rows.pitch);
  }

  template <typename Visit>
  bool VisitIn(const Rows& rows, const Places& where, const Visit& visit) const {
    if (rows.items.empty() || rows.end <= where.begin() || where.end() <= rows.begin) return false;
    const int64_t run = RunOf(rows, where);
    if (run == 0) {
      for (T* const item : rows.items) {
        ++compared_;
        if (item->where.MayOverlap(where) && visit(*item)) return true;
      }
      return false;
    }
    const int64_t place = PlaceOf(rows, where), behind = place + run;
    if (VisitPart(rows, place, behind, where, visit)) return true;
    // What goes on at the beginning of the next row.
    return behind > rows.pitch && VisitPart(rows, 0, behind - rows.pitch, where, visit);
  }

  // Of items sorted by their first bytes, the last one first. `are_apart`: each ends before the next begins.
  template <typename Visit>
  bool VisitLine(typename Items::const_iterator first, typename Items::const_iterator last,
                 bool are_apart, const Places& where, const Visit& visit) const {
    auto at = std::partition_point(
        first, last, [&](const T* item) { return item->where.begin() < where.end(); });
    while (at != first) {
      T& item = **--at;
      ++compared_;
      if (item.where.MayOverlap(where)) {
        if (visit(item)) return true;
      } else if (are_apart && item.where.end() <= where.begin()) {
        break;
      }
    }
    return false;
  }

  // Of items that have places of the row in [begin, end).
  template <typename Visit>
  bool VisitPart(const Rows& rows, int64_t begin, int64_t end, const Places& where,
                 const Visit& visit) const {
    const auto first = rows.items.begin();
    auto last = std::partition_point(
        first, rows.items.end(), [&](const T* item) { return PlaceOf(rows, item->where) < end; });
    while (last != first) {
      const Places& of_last = (*std::prev(last))->where;
      const int64_t place = PlaceOf(rows, of_last);
      if (place + RunOf(rows, of_last) <= begin) return false;
      const auto same = std::partition_point(
          first, last, [&](const T* item) { return PlaceOf(rows, item->where) < place; });
      if (VisitLine(same, last, true, where, visit)) return true;
      last = same;
    }
    return false;
  }

  // The first item behind which one at that place is not.
  static typename Items::const_iterator Find(const Rows& rows, int64_t place, const Places& where) {
    return std::partition_point(rows.items.begin(), rows.items.end(), [&](const T* item) {
      const int64_t of_item = PlaceOf(rows, item->where);
      return of_item != place ? of_item < place : item->where.begin() < where.begin();
    });
  }

  // Where the items stay sorted with it.
  bool AddIfItFits(Rows& rows, T& item) {
    const Places& where = item.where;
    if (rows.items.empty()) rows.origin = where.begin();
    const int64_t place = PlaceOf(rows, where), run = RunOf(rows, where);
    if (!rows.is_sorted || run == 0 || (rows.pitch != 0 && place + run > rows.pitch)) return false;
    const auto at = Find(rows, place, where);
    if (at != rows.items.end()) {
      const Places& next = (*at)->where;
      const int64_t of_next = PlaceOf(rows, next);
      if (of_next == place ? RunOf(rows, next) != run || next.begin() < where.end()
                           : of_next < place + run)
        return false;
    }
    if (at != rows.items.begin()) {
      const Places& before = (*std::prev(at))->where;
      const int64_t of_before = PlaceOf(rows, before), its_run = RunOf(rows, before);
      if (of_before == place ? its_run != run || before.end() > where.begin()
                             : of_before + its_run > place)
        return false;
    }
    InsertAt(rows, at, item);
    return true;
  }

  static void InsertAt(Rows& rows, typename Items::const_iterator at, T& item) {
    const bool is_first = rows.items.empty();
    rows.items.insert(at, &item);
    rows.begin = is_first ? item.where.begin() : std::min(rows.begin, item.where.begin());
    rows.end = is_first ? item.where.end() : std::max(rows.end, item.where.end());
  }

  // Empty ones of its own pitch, or of that of whom it lies between; null: it has none, or there are too many.
  Rows* NewRowsFor(const Places& where) {
    int64_t pitch = where.pitch();
    for (size_t i = 0; pitch == 0 && i < base_.items.size(); ++i) {
      const Places& other = base_.items[i]->where;
      if (other.begin() < where.end() && where.begin() < other.end()) pitch = other.pitch();
    }
    if (pitch == 0) return nullptr;
    auto at =
        std::find_if(rows_.begin(), rows_.end(), [](const Rows& r) { return r.items.empty(); });
    if (at == rows_.end()) {
      if (rows_.size() == kMostRows) return nullptr;
      at = rows_.emplace(rows_.end());
    }
    at->pitch = pitch;
    return &*at;
  }

  static bool RemoveFrom(Rows& rows, const T& item) {
    const auto first = Find(rows, PlaceOf(rows, item.where), item.where);
    const auto at = std::find(first, rows.items.cend(), &item);
    if (at == rows.items.end()) return false;
    rows.items.erase(at);
    if (rows.items.empty()) Clear(rows);
    return true;
  }

  static void Clear(Rows& rows) {
    rows.items.clear();
    rows.is_sorted = true;
  }

  Rows base_;  // in no rows
  std::vector<Rows> rows_;
  mutable int64_t compared_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_PLACE_INDEX_H_
