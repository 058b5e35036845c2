#include "tidepool/memory/profile/memory_profile.h"

#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/chrome_trace.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/recorder.h"

namespace tidepool {

MemoryProfile::MemoryProfile(MemoryProfileOptions options) : options_(std::move(options)) {
  if (options_.max_records < 1)
    ThrowInvalidArgument("MemoryProfile: max_records is 0, expected at least 1");
  if (!internal::MemoryRecorder::Global().Start(options_.max_records, options_.sites)) {
    ThrowFailedPrecondition("MemoryProfile: another one is recording; there is one at a time");
  }
}

MemoryProfile::~MemoryProfile() {
  if (running_) internal::MemoryRecorder::Global().Stop();
}

void MemoryProfile::Stop() {
  if (!running_) return;
  running_ = false;
  internal::MemoryRecorder::Global().Stop();
  data_ = internal::MemoryRecorder::Global().Collect();
  owners_.reset();
  data_.title = options_.title;
}

const ProfileData& MemoryProfile::data() {
  Stop();
  return data_;
}

void MemoryProfile::WriteHtml(const std::string& path) {
  Stop();
  WriteProfilePage(data_, path);
}

void MemoryProfile::WriteChromeTrace(const std::string& path) {
  Stop();
  tidepool::WriteChromeTrace(data_, path);
}

}  // namespace tidepool
