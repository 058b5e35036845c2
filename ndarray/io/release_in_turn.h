// Letting go of what lets go of more: one after the other instead of within one another.
//
// A tensor of another library that ends may take the last array of a second one with it, and that
// one a third's: as many as anybody has exported and imported in turn. Each would take room on the
// stack.
#ifndef TIDEPOOL_NDARRAY_IO_RELEASE_IN_TURN_H_
#define TIDEPOOL_NDARRAY_IO_RELEASE_IN_TURN_H_

namespace tidepool::internal {

// Calls release(context): now, or, within another call on this thread, before the outermost one
// returns. Any thread, one that is ending too.
void InTurn(void (*release)(void*), void* context);

// The same as a function that may itself be a release.
template <void (*release)(void*)>
void ReleaseInTurn(void* context) {
  InTurn(release, context);
}

}  // namespace tidepool::internal

#endif  // TIDEPOOL_NDARRAY_IO_RELEASE_IN_TURN_H_
