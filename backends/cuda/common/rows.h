// Kernels over rows of dense elements: a team of threads takes a row, a part of 64 bytes and more each
// of them, and keeps it in registers between its passes.
//
//   const Rows rows = Rows::Of<T>(count, size);
//   WithRowKind<T>(rows, [&](auto width, auto one) {
//     Launch(Kernel<T, width(), one()>, rows.blocks(), rows.threads(), 0, stream, rows, ...);
//   });
//
//   const RowThread at(rows);             // in the kernel
//   RowPieces<T, kWidth, kOne> pieces(at, x + at.row * rows.size, rows.size);
//   pieces.Each([&](int64_t begin, int count) {
//     pieces.part.ForEach(at, count, [&](int u, int) { sum += pieces.part.value[u]; });
//   });
//
// Which elements a thread has depends on the row's size alone, so that sums have the same bits whether
// or not a row begins at a multiple of 16 bytes.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_ROWS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/shuffle.h"

namespace tidepool::cuda {

inline constexpr int kRowThreads = 128;      // of a block whose teams are smaller
inline constexpr int kMostRowThreads = 512;  // of a team, which is a block then

// Accesses of a thread before it needs the first: 64 bytes of what T is computed in.
template <typename T, int kWidth>
inline constexpr int kRowAccesses = kWidth == 1 ? 8 : 64 / (sizeof(Compute<T>) * kWidth);

// Blocks of kMostRowThreads that the registers of kernels suffice for. Doubles take twice as many, rows in
// pieces some for going through them.
template <typename T, bool kOne = true>
inline constexpr int kRowBlocks = kOne && !std::is_same_v<T, double> ? 2 : 1;

struct Rows {
  int64_t count = 0, size = 0;
  double share = 0;   // 1 / size
  int lanes = 1;      // threads of a team: a power of two
  bool wide = false;  // a thread takes 16 bytes side by side; else single elements

  template <typename T>
  static Rows Of(int64_t count, int64_t size, int most_lanes = kMostRowThreads) {
    constexpr int kWidth = kAccessWidth<T>;
    Rows rows;
    rows.count = count;
    rows.size = size;
    rows.share = size > 0 ? 1 / static_cast<double>(size) : std::numeric_limits<double>::infinity();
    rows.wide = size % kWidth == 0;
    // Single elements are spread over a warp before a lane takes a second.
    const int64_t wanted = rows.wide ? Ceiling(size, kWidth * kRowAccesses<T, kWidth>)
                           : size <= 32 * kRowAccesses<T, 1> ? std::min<int64_t>(32, size)
                                                             : Ceiling(size, kRowAccesses<T, 1>);
    while (rows.lanes < wanted && rows.lanes < most_lanes) rows.lanes *= 2;
    return rows;
  }
  // Whether the parts of the threads make a whole row.
  template <typename T>
  bool Fits() const {
    const int64_t part =
        wide ? kAccessWidth<T> * kRowAccesses<T, kAccessWidth<T>> : kRowAccesses<T, 1>;
    return size <= lanes * part;
  }
  int threads() const { return std::max(lanes, kRowThreads); }
  unsigned blocks() const { return static_cast<unsigned>(Ceiling(count, threads() / lanes)); }

  static int64_t Ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
};

// visit(std::integral_constant<int, elements of an access>)
template <typename T, typename Visit>
void WithRowWidth(const Rows& rows, Visit visit) {
  if (rows.wide) {
    visit(std::integral_constant<int, kAccessWidth<T>>());
  } else {
    visit(std::integral_constant<int, 1>());
  }
}
// visit(as above, std::bool_constant<whether rows are of one piece>)
template <typename T, typename Visit>
void WithRowKind(const Rows& rows, Visit visit) {
  WithRowWidth<T>(rows, [&](auto width) {
    if (rows.Fits<T>()) {
      visit(width, std::true_type());
    } else {
      visit(width, std::false_type());
    }
  });
}

// This thread's place. Teams beyond the last row have it too, so that all take part in barriers and
// shuffles; they are not `real` and must not write.
struct RowThread {
  int lanes, lane, slot, slots;  // in its team; of the team in the block
  int64_t row;
  bool real;

  __device__ __forceinline__ explicit RowThread(const Rows& rows)
      : lanes(rows.lanes),
        lane(static_cast<int>(threadIdx.x) & (rows.lanes - 1)),
        slot(static_cast<int>(threadIdx.x) / rows.lanes),
        slots(static_cast<int>(blockDim.x) / rows.lanes) {
    Take(rows, static_cast<int64_t>(blockIdx.x) * slots);
  }
  // Row `first` is that of the block's first team.
  __device__ __forceinline__ void Take(const Rows& rows, int64_t first) {
    real = first + slot < rows.count;
    row = real ? first + slot : rows.count - 1;
  }
};

// What the lanes of each team have, merged; all of them get it. `shared` has room for 32 values.
template <typename Value, typename Merge>
__device__ __forceinline__ Value MergeTeam(const RowThread& at, const Value& value, Value* shared,
                                           Merge merge) {
  return at.lanes <= 32 ? MergeWarp(at.lanes, value, merge)
                        : MergeWarps(at.lanes, value, shared, merge);
}

struct AddUp {
  template <typename Value>
  __device__ __forceinline__ Value operator()(const Value& a, const Value& b) const {
    return a + b;
  }
};

// A thread's elements of a row, or of a piece of it where the row is too long for registers. A piece
// begins at a pointer and has `count` elements, of which threads take what lies below.
template <typename T, int kWidth>
struct RowPart {
  static constexpr int kAccesses = kRowAccesses<T, kWidth>;
  static constexpr int kCount = kAccesses * kWidth;
  using W = Compute<T>;

  W value[kCount];

  // visit(access, place of its first element in the piece).
  template <typename Visit>
  __device__ __forceinline__ static void ForEachAccess(const RowThread& at, int count,
                                                       Visit visit) {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      const int i = (k * at.lanes + at.lane) * kWidth;
      if (i < count) visit(k, i);
    }
  }
  // visit(place in the part, in the piece)
  template <typename Visit>
  __device__ __forceinline__ static void ForEach(const RowThread& at, int count, Visit visit) {
    ForEachAccess(at, count, [&](int k, int i) {
#pragma unroll
      for (int u = 0; u < kWidth; ++u) visit(k * kWidth + u, i + u);
    });
  }

  // visit(begin, elements) of each piece of a row.
  template <typename Visit>
  __device__ __forceinline__ static void ForEachPiece(const RowThread& at, int64_t size,
                                                      Visit visit) {
    const int64_t span = static_cast<int64_t>(at.lanes) * kCount;
    for (int64_t begin = 0; begin < size; begin += span) {
      visit(begin, static_cast<int>(min(span, size - begin)));
    }
  }
  // visit(place in the part, what each of `from` has at place i) for this thread's elements.
  template <typename Visit, typename... From>
  __device__ __forceinline__ static void ForEachOf(const RowThread& at, int count, Visit visit,
                                                   const From*... from) {
    const bool aligned = kWidth > 1 && (IsAligned(from) && ...);
    InBatches(
        at, count, aligned,
        [&](int k, int, const auto&... loaded) {
#pragma unroll
          for (int u = 0; u < kWidth; ++u) visit(k * kWidth + u, loaded.lane[u]...);
        },
        from...);
  }

  // What a thread loads, before it is looked at: of several arrays all is under way then.
  struct Raw {
    Vector<T, kWidth> access[kAccesses];

    // Elements beyond the piece are `rest`.
    __device__ __forceinline__ Raw(const RowThread& at, const T* piece, int count, W rest = 0) {
#pragma unroll
      for (int k = 0; k < kAccesses; ++k) {
#pragma unroll
        for (int u = 0; u < kWidth; ++u) access[k].lane[u] = FromCompute<T>(rest);
      }
      if (kWidth > 1 && IsAligned(piece)) {
        ForEachAccess(at, count,
                      [&](int k, int i) { access[k] = LoadAccess<kWidth>(piece + i, true); });
      } else {
        ForEachAccess(at, count,
                      [&](int k, int i) { access[k] = LoadAccess<kWidth>(piece + i, false); });
      }
    }
  };

  RowPart() = default;
  __device__ __forceinline__ explicit RowPart(const Raw& raw) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) value[u] = Wide(raw.access[u / kWidth].lane[u % kWidth]);
  }
  __device__ __forceinline__ void Load(const RowThread& at, const T* piece, int count, W rest = 0) {
    *this = RowPart(Raw(at, piece, count, rest));
  }

  // piece[i] = result(place in the part, what `more` have at place i...), which is of type T.
  template <typename Result, typename... More>
  __device__ __forceinline__ static void Store(const RowThread& at, T* piece, int count,
                                               Result result, const More*... more) {
    const bool aligned = kWidth > 1 && IsAligned(piece) && (IsAligned(more) && ... && true);
    InBatches(
        at, count, aligned,
        [&](int k, int i, const auto&... loaded) {
          Vector<T, kWidth> access;
#pragma unroll
          for (int u = 0; u < kWidth; ++u) {
            access.lane[u] = result(k * kWidth + u, loaded.lane[u]...);
          }
          StoreAccess(piece + i, aligned, access);
        },
        more...);
  }

 private:
  // visit(access, its place, what each of `from` has there). Two are loaded before the first is visited:
  // loads do not pass the stores that visits make.
  template <typename Visit, typename... From>
  __device__ __forceinline__ static void InBatches(const RowThread& at, int count, bool aligned,
                                                   Visit visit, const From*... from) {
    if constexpr (kAccesses == 1) {
      ForEachAccess(at, count,
                    [&](int k, int i) { visit(k, i, LoadAccess<kWidth>(from + i, aligned)...); });
    } else {
#pragma unroll
      for (int k = 0; k < kAccesses; k += 2) {
        const int i = (k * at.lanes + at.lane) * kWidth, j = i + at.lanes * kWidth;
        if (j < count) {
          auto second = [&](const auto&... first) {
            auto both = [&](const auto&... other) {
              visit(k, i, first...);
              visit(k + 1, j, other...);
            };
            both(LoadAccess<kWidth>(from + j, aligned)...);
          };
          second(LoadAccess<kWidth>(from + i, aligned)...);
        } else if (i < count) {
          visit(k, i, LoadAccess<kWidth>(from + i, aligned)...);
        }
      }
    }
  }
};

// A row in pieces: Each(body) calls body(begin, elements) for every piece, which `part` has then. A row
// of one piece is loaded once, however often it is gone through.
template <typename T, int kWidth, bool kOne>
class RowPieces {
 public:
  RowPart<T, kWidth> part;

  // `rest`: of the last piece's elements beyond the row.
  __device__ __forceinline__ RowPieces(const RowThread& at, const T* row, int64_t size,
                                       Compute<T> rest = 0)
      : at_(at), row_(row), size_(size), rest_(rest) {
    Load(0);
  }
  __device__ __forceinline__ int CountAt(int64_t begin) const {
    return static_cast<int>(kOne ? size_ : min(size_ - begin, Span()));
  }
  // `last`: what is in `part` afterwards does not matter.
  template <typename Body>
  __device__ __forceinline__ void Each(Body body, bool last = false) {
    body(int64_t{0}, CountAt(0));
    if constexpr (!kOne) {
      for (int64_t begin = Span(); begin < size_; begin += Span()) {
        Load(begin);
        body(begin, CountAt(begin));
      }
      if (!last) Load(0);
    }
  }

 private:
  __device__ __forceinline__ int64_t Span() const {
    return static_cast<int64_t>(at_.lanes) * RowPart<T, kWidth>::kCount;
  }
  __device__ __forceinline__ void Load(int64_t begin) {
    part.Load(at_, row_ + begin, CountAt(begin), rest_);
  }

  const RowThread& at_;
  const T* row_;
  const int64_t size_;
  const Compute<T> rest_;
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_ROWS_H_
