// DataSetIterator and MultiDataSetIterator: batches one after the other, epoch after epoch.
//
//   ExampleIterator batches(examples, {.batch_size = 64, .seed = 7});        // example_iterator.h
//   for (int epoch = 0; epoch < 3; ++epoch, batches.Reset()) trainer.Fit(batches);
//
// or, with the loop in one's own hands,
//
//   while (std::optional<DataSet> batch = batches.Next()) {
//     trainer.Step([&] { return std::move(*batch); });
//   }
//
// Whoever writes one derives from Iterator, if batches can only be had one behind the other (a
// stream, a socket), or from IndexedIterator, if each can be made by itself: those are made by
// several threads at once where they are made ahead (async_iterator.h). FunctionIterator is one of
// a function.
//
// Errors: what a source throws, as it is. Threads: one at a time, but for Make of iterators that go
// by index.
#ifndef TIDEPOOL_NN_DATA_DATA_SET_ITERATOR_H_
#define TIDEPOOL_NN_DATA_DATA_SET_ITERATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "tidepool/nn/data/data_set.h"

namespace tidepool::nn {

template <typename Set>
class Iterator {
 public:
  virtual ~Iterator() = default;

  // The next batch, made in the current place; none after an epoch's last one, until Reset(). A
  // source that waits (for a file, a socket, another thread) waits with `stop`, and comes back by
  // whatever batch or exception when it is requested: nobody sees either.
  std::optional<Set> Next(const std::stop_token& stop = {}) { return NextBatch(stop); }
  // The next epoch, from its first batch, however far this one is.
  virtual void Reset() = 0;
  // Whether batches may be made before they are asked for, on other threads. Shields say no.
  virtual bool allows_prefetch() const { return true; }

  // Of an iterator that goes by index: Next() is Make(*Claim()).
  virtual bool goes_by_index() const { return false; }
  // Takes the next batch, whose number it returns: quick; none after the last.
  virtual std::optional<int64_t> Claim();
  // Makes a batch that was claimed and not yet made, in the current place. Any number of threads at
  // a time.
  virtual Set Make(int64_t index, const std::stop_token& stop) const;

 protected:
  Iterator() = default;
  Iterator(const Iterator&) = default;
  Iterator& operator=(const Iterator&) = default;
  // What Next() gives; `stop`: nobody wants it any more.
  virtual std::optional<Set> NextBatch(const std::stop_token& stop) = 0;
};

// Of batches of one input and label, and of several.
using DataSetIterator = Iterator<DataSet>;
using MultiDataSetIterator = Iterator<MultiDataSet>;

// One that makes any batch of an epoch by its number, so that several threads may.
template <typename Set>
class IndexedIterator : public Iterator<Set> {
 public:
  // Batches of an epoch.
  virtual int64_t size() const = 0;
  Set Make(int64_t index, const std::stop_token& stop) const override = 0;
  // Batches claimed in this epoch.
  int64_t position() const { return position_; }
  // Goes on with that batch; throws kInvalidArgument unless 0 <= position <= size().
  void Seek(int64_t position);

  void Reset() override { position_ = 0; }
  bool goes_by_index() const final { return true; }
  std::optional<int64_t> Claim() final;

 protected:
  std::optional<Set> NextBatch(const std::stop_token& stop) final;

 private:
  int64_t position_ = 0;
};

// Batches 0 to count - 1 of a function of their number, which several threads may call at once
// where several producers make them ahead.
template <typename Set>
class FunctionIterator final : public IndexedIterator<Set> {
 public:
  // Makes a batch; sources that wait do so with `stop`.
  using Function = std::function<Set(int64_t index, const std::stop_token& stop)>;

  // `function` and what it uses outlive it. Throws kInvalidArgument for a negative count or an
  // empty function.
  FunctionIterator(int64_t count, Function function);
  FunctionIterator(int64_t count, std::function<Set(int64_t index)> function)
      : FunctionIterator(count, IgnoringStop(std::move(function))) {}

  int64_t size() const override { return count_; }
  Set Make(int64_t index, const std::stop_token& stop) const override {
    return function_(index, stop);
  }

 private:
  static Function IgnoringStop(std::function<Set(int64_t)> function);
  int64_t count_;
  Function function_;
};

// An iterator whose batches nobody makes ahead: for sources that must be read on the thread that
// uses them, or that depend on what was done with the batch before. `base` outlives it.
template <typename Set>
class ShieldedIterator final : public Iterator<Set> {
 public:
  explicit ShieldedIterator(Iterator<Set>& base) : base_(base) {}
  void Reset() override { base_.Reset(); }
  bool allows_prefetch() const override { return false; }

 protected:
  std::optional<Set> NextBatch(const std::stop_token& stop) override { return base_.Next(stop); }

 private:
  Iterator<Set>& base_;
};

// By the names of DL4J.
using AsyncShieldDataSetIterator = ShieldedIterator<DataSet>;
using AsyncShieldMultiDataSetIterator = ShieldedIterator<MultiDataSet>;

extern template class Iterator<DataSet>;
extern template class Iterator<MultiDataSet>;
extern template class IndexedIterator<DataSet>;
extern template class IndexedIterator<MultiDataSet>;
extern template class FunctionIterator<DataSet>;
extern template class FunctionIterator<MultiDataSet>;

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_DATA_SET_ITERATOR_H_
