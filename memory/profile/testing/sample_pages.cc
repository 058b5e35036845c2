// Writes pages and traces of made up recordings into a folder, for browser_test.sh and perfetto_test.sh: train.html and
// train.json, large.html and large.json with 100,000 events.
#include <cstdio>
#include <string>

#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/chrome_trace.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/testing/sample_recordings.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sample_pages FOLDER\n");
    return 2;
  }
  try {
    const std::string folder = argv[1];
    const tidepool::ProfileData train = tidepool::TrainingRecording(200);
    const tidepool::ProfileData large = tidepool::UnevenRecording(50000, 100, 1);
    tidepool::WriteProfilePage(train, folder + "/train.html");
    tidepool::WriteProfilePage(large, folder + "/large.html");
    tidepool::WriteChromeTrace(train, folder + "/train.json");
    tidepool::WriteChromeTrace(large, folder + "/large.json");
  } catch (const tidepool::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
