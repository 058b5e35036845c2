// Standard input, output and error of a program that was started without them (`>&-`).
#ifndef TIDEPOOL_MEMORY_IO_STANDARD_STREAMS_H_
#define TIDEPOOL_MEMORY_IO_STANDARD_STREAMS_H_

namespace tidepool {

// Descriptors 0 to 2 that are closed are opened, or the next file or socket would be one of them
// and get what is printed. Input is empty then, errors are written nowhere, and writing to standard
// output fails as to one that is closed. First in main(), before anything is opened.
void OpenClosedStandardStreams();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_STANDARD_STREAMS_H_
