// Writes pages of made up recordings into a folder, for browser_test.sh: train.html, large.html with 100,000 events.
#include <cstdio>
#include <string>

#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/testing/sample_recordings.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sample_pages FOLDER\n");
    return 2;
  }
  try {
    const std::string folder = argv[1];
    tidepool::WriteProfilePage(tidepool::TrainingRecording(200), folder + "/train.html");
    tidepool::WriteProfilePage(tidepool::UnevenRecording(50000, 100, 1), folder + "/large.html");
  } catch (const tidepool::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
