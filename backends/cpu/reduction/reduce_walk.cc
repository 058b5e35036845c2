#include "tidepool/backends/cpu/reduction/reduce_walk.h"

#include <algorithm>
#include <cstddef>

#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Elements a task takes at least.
constexpr int64_t kTaskElements = 1 << 15;
// Rows of one call, and partials of one output that are joined at once: they lie on the stack.
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostPartialBytes = 16;
// Few columns are cut into runs of at least so many, for threads to share: a kilobyte of floats, as runs of rows that are read
// a piece at a time should not be shorter.
constexpr int64_t kLeastColumns = 256;
constexpr int64_t kEnoughRuns = 8;
// More elements than this of one output are cut into parts that threads share.
constexpr int64_t kPartElements = 1 << 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The plan with names for what the loops take. Of a reduced inner axis: `lines` are kept and call
// after call gives one partial a line. Of a kept one: lines are reduced, and it is cut into strips.
struct Walk {
  explicit Walk(const ReducePlan& plan, const ReduceLoops& l)
      : loops(l),
        kept(plan.kept),
        reduced(plan.reduced),
        inner(plan.inner),
        inner_is_reduced(plan.inner_is_reduced) {
    lines = inner_is_reduced ? kept.TakeLast() : reduced.TakeLast();
    kept_count = kept.size();
    reduced_count = reduced.size();
    const int64_t run = inner_is_reduced ? inner.size : lines.size;
    const int64_t longest = inner_is_reduced ? kPartElements : loops.slab_rows;
    pieces = CeilDiv(run, longest);
    piece = longest;
    // Indices of the outer reduced axes that one part takes.
    per_part = pieces > 1 ? 1 : std::max<int64_t>(1, longest / std::max<int64_t>(1, run));
    parts = CeilDiv(reduced_count, per_part) * pieces;
    if (inner_is_reduced) {
      outputs = kept_count * lines.size;
    } else {
      outputs = kept_count * inner.size;
    }
  }

  const ReduceLoops& loops;
  ReduceAxes kept, reduced;
  ReduceAxis inner, lines;
  bool inner_is_reduced;
  int64_t kept_count, reduced_count, pieces, piece, per_part, parts, outputs;
};

struct Call {
  const Walk& walk;
  const std::byte* x;
  int64_t element_bytes;
  const std::byte* stats;
  int64_t stat_bytes;

  const void* At(int64_t offset) const { return x + offset * element_bytes; }
  const void* StatAt(int64_t output) const {
    return stats == nullptr ? nullptr : stats + output * stat_bytes;
  }
};

// Partials of `rows` lines from `line` of kept index `outer`, of part `part`; reduced inner axis.
void FoldRows(const Call& call, int64_t outer, int64_t line, int64_t rows, int64_t part,
              void* partials) {
  const Walk& w = call.walk;
  alignas(16) std::byte more[kMostRows * kMostPartialBytes];
  const int64_t first = part / w.pieces * w.per_part, begin = part % w.pieces * w.piece;
  const int64_t n = std::min(w.piece, w.inner.size - begin);
  const int64_t end = std::min(first + w.per_part, w.reduced_count);
  const int64_t at = w.kept.XOffset(outer) + line * w.lines.x_stride + begin;
  const void* stats = call.StatAt(outer * w.lines.size + line);
  for (int64_t index = first; index < end; ++index) {
    w.loops.rows(call.At(at + w.reduced.XOffset(index)), rows, w.lines.x_stride, n, begin, stats,
                 index == first ? partials : more);
    if (index > first) w.loops.merge(more, partials, rows);
  }
}

// Partials of `columns` of the kept inner axis from `column`.
void FoldColumns(const Call& call, int64_t outer, int64_t column, int64_t columns, int64_t part,
                 void* partials) {
  const Walk& w = call.walk;
  alignas(16) std::byte more[kMaxColumns * kMostPartialBytes];
  const int64_t first = part / w.pieces * w.per_part, begin = part % w.pieces * w.piece;
  const int64_t rows = std::min(w.piece, w.lines.size - begin);
  const int64_t end = std::min(first + w.per_part, w.reduced_count);
  const int64_t at = w.kept.XOffset(outer) + begin * w.lines.x_stride + column;
  const void* stats = call.StatAt(outer * w.inner.size + column);
  for (int64_t index = first; index < end; ++index) {
    w.loops.columns(call.At(at + w.reduced.XOffset(index)), rows, w.lines.x_stride, columns, begin,
                    stats, index == first ? partials : more);
    if (index > first) w.loops.merge(more, partials, columns);
  }
}

// Outputs are cut into runs along the lines or columns of one kept index.
struct Runs {
  explicit Runs(const Walk& w) {
    along = w.inner_is_reduced ? w.lines.size : w.inner.size;
    length = std::min(along, w.inner_is_reduced ? kMostRows : kMaxColumns);
    while (!w.inner_is_reduced && length >= 2 * kLeastColumns &&
           w.kept_count * CeilDiv(along, length) * w.parts < kEnoughRuns) {
      length = CeilDiv(length / 2, 16) * 16;
    }
    each = CeilDiv(along, length);
    count = w.kept_count * each;
  }
  int64_t along, length, each, count;
};

}  // namespace

size_t ReduceScratchBytes(const ReducePlan& plan, const ReduceLoops& loops) {
  const Walk walk(plan, loops);
  return walk.parts == 1 ? 0 : static_cast<size_t>(walk.parts * walk.outputs * loops.partial_bytes);
}

void ReduceOver(const ReducePlan& plan, const ReduceLoops& loops, const void* x,
                int64_t element_bytes, const void* stats, int64_t stat_bytes, void* scratch,
                Threads threads, FinishReduction finish) {
  const Walk walk(plan, loops);
  const Call call{walk, static_cast<const std::byte*>(x), element_bytes,
                  static_cast<const std::byte*>(stats), stat_bytes};
  const Runs runs(walk);
  const int64_t z_stride = walk.inner_is_reduced ? walk.lines.z_stride : walk.inner.z_stride;
  auto fold = [&](int64_t run, int64_t part, void* partials) {
    const int64_t outer = run / runs.each, begin = run % runs.each * runs.length;
    const int64_t count = std::min(runs.length, runs.along - begin);
    if (walk.inner_is_reduced) {
      FoldRows(call, outer, begin, count, part, partials);
    } else {
      FoldColumns(call, outer, begin, count, part, partials);
    }
  };
  auto finish_run = [&](int64_t run, const void* partials) {
    const int64_t outer = run / runs.each, begin = run % runs.each * runs.length;
    finish(partials, outer * runs.along + begin, std::min(runs.length, runs.along - begin),
           walk.kept.ZOffset(outer) + begin * z_stride, z_stride);
  };
  const int64_t elements = walk.outputs * walk.reduced_count *
                           (walk.inner_is_reduced ? walk.inner.size : walk.lines.size);
  const int64_t tasks = runs.count * walk.parts;
  const int64_t grain =
      std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, elements / tasks));
  if (walk.parts == 1) {
    ParallelFor(threads, tasks, grain, elements, [&](int64_t begin, int64_t end) {
      alignas(16) std::byte partials[kMaxColumns * kMostPartialBytes];
      for (int64_t run = begin; run < end; ++run) {
        fold(run, 0, partials);
        finish_run(run, partials);
      }
    });
    return;
  }
  // [run, part, output of the run], the runs of one length apart.
  auto* all = static_cast<std::byte*>(scratch);
  auto partials_of = [&](int64_t run, int64_t part) {
    const int64_t outer = run / runs.each, begin = run % runs.each * runs.length;
    const int64_t count = std::min(runs.length, runs.along - begin);
    const int64_t before = (outer * runs.along + begin) * walk.parts + part * count;
    return all + before * loops.partial_bytes;
  };
  ParallelFor(threads, tasks, grain, elements, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t run = task / walk.parts, part = task % walk.parts;
      fold(run, part, partials_of(run, part));
    }
  });
  for (int64_t run = 0; run < runs.count; ++run) {
    const int64_t count = std::min(runs.length, runs.along - run % runs.each * runs.length);
    for (int64_t part = 1; part < walk.parts; ++part) {
      loops.merge(partials_of(run, part), partials_of(run, 0), count);
    }
    finish_run(run, partials_of(run, 0));
  }
}

}  // namespace tidepool::cpu
