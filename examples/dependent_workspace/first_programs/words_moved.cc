// words.cc as `tidepool advise` has it: each text is a cycle of a workspace, whose memory its containers have.
#include <cstdio>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace {

size_t DifferentWords(int text, std::pmr::memory_resource* memory) {
  std::pmr::vector<std::pmr::string> words(memory);
  for (int i = 0; i < 300; ++i) {
    words.emplace_back("a word of some length, number ") += std::to_string(text * i % 97);
  }
  std::pmr::map<std::pmr::string, int> counts(memory);
  for (const std::pmr::string& word : words) ++counts[word];
  return counts.size();
}

}  // namespace

int main() {
  tidepool::Workspace workspace("texts", tidepool::WorkspaceConfig::Inference());
  tidepool::WorkspaceResource memory(workspace);
  size_t sum = 0;
  for (int text = 0; text < 400; ++text) {
    tidepool::WorkspaceScope scope(workspace);
    sum += DifferentWords(text, &memory);
  }
  std::printf("%zu\n", sum);
}
