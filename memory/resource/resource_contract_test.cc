// Every resource and some compositions, on the host and on a device whose bytes the host cannot
// touch.
#include "tidepool/memory/resource/testing/resource_contract.h"

#include "tidepool/memory/resource/align_resource.h"
#include "tidepool/memory/resource/budgeted_resource.h"
#include "tidepool/memory/resource/canary_resource.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/count_resource.h"
#include "tidepool/memory/resource/guard_pages.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/limit_resource.h"
#include "tidepool/memory/resource/locked_resource.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/provider_blocks.h"
#include "tidepool/memory/resource/reclaiming_resource.h"
#include "tidepool/memory/resource/record_resource.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

MemoryOwner& Owner() { return MemoryOwner::Process().Child("resource test"); }

PagesOptions OfOwner() {
  PagesOptions options;
  options.prefault = false;
  options.owner = &Owner();
  return options;
}

std::vector<ResourceCase> CasesOn(Device device, const std::string& suffix) {
  using Stack = ResourceStack;
  using Memory = DeviceProvider;
  std::vector<ResourceCase> cases = {
      {"provider_blocks", [](Stack& s, Memory& m) { s.Add<ProviderBlocks>(m); }, {}, true, 4096},
      {"page_blocks",
       [](Stack& s, Memory& m) { s.Add<PageBlocks>(m, OfOwner()); },
       {},
       true,
       2 * kMiB},
      {"pages_resource", [](Stack& s, Memory& m) { s.Add<PagesResource>(OfOwner(), m); }, {}, true},
      {"heap",
       [](Stack& s, Memory& m) { s.Add<HeapResource>(m, MemoryKind::kAllocated, &Owner()); },
       {},
       true,
       4096},
      {"pool",
       [](Stack& s, Memory& m) { s.Add<Pool>(s.Add<PagesResource>(OfOwner(), m), 1 << 18, 256); },
       {},
       false,
       256},
      {"locked_pool",
       [](Stack& s, Memory& m) {
         s.Add<LockedResource>(s.Add<Pool>(s.Add<PagesResource>(OfOwner(), m), 1 << 18, 64));
       },
       {},
       true},
      {"pool_of_blocks",
       [](Stack& s, Memory& m) { s.Add<Pool>(s.Add<ProviderBlocks>(m), 1 << 16, 64); }},
      {"pool_of_pool",
       [](Stack& s, Memory& m) {
         s.Add<Pool>(s.Add<Pool>(s.Add<PageBlocks>(m, OfOwner()), kMiB, 64), 1 << 14, 64);
       }},
      {"limit",
       [](Stack& s, Memory& m) { s.Add<LimitResource>(s.Add<ProviderBlocks>(m), 64 * kMiB); },
       {},
       true},
      {"count",
       [](Stack& s, Memory& m) { s.Add<CountResource>(s.Add<ProviderBlocks>(m)); },
       {},
       true},
      {"record",
       [](Stack& s, Memory& m) { s.Add<RecordResource>(s.Add<ProviderBlocks>(m)); },
       {},
       true},
      {"align",
       [](Stack& s, Memory& m) { s.Add<AlignResource>(s.Add<ProviderBlocks>(m), 256); },
       {},
       true,
       kMiB},
      {"align_pool",
       [](Stack& s, Memory& m) {
         s.Add<AlignResource>(s.Add<Pool>(s.Add<PagesResource>(OfOwner(), m), 1 << 18, 64), 64);
       },
       {},
       false,
       8192},
      {"canary",
       [](Stack& s, Memory& m) { s.Add<CanaryResource>(s.Add<ProviderBlocks>(m), m); },
       {},
       true,
       4096},
      {"budgeted",
       [](Stack& s, Memory& m) {
         s.Add<BudgetedResource>(s.Add<PageBlocks>(m, OfOwner()), &Owner(), "pages");
       },
       {},
       true},
      {"charged",
       [](Stack& s, Memory& m) {
         s.Add<ChargedResource>(s.Add<ProviderBlocks>(m), MemoryKind::kWorkspace, &Owner(),
                                "blocks");
       },
       {},
       true},
      {"reclaiming",
       [](Stack& s, Memory& m) { s.Add<ReclaimingResource>(s.Add<ProviderBlocks>(m)); },
       {},
       true},
      {"all_of_them",
       [](Stack& s, Memory& m) {
         MemoryResource& pages = s.Add<ReclaimingResource>(s.Add<LimitResource>(
             s.Add<BudgetedResource>(s.Add<PageBlocks>(m, OfOwner()), &Owner(), "pages"),
             64 * kMiB));
         MemoryResource& shared = s.Add<LockedResource>(s.Add<Pool>(pages, 1 << 18, 64));
         MemoryResource& watched = s.Add<CanaryResource>(s.Add<AlignResource>(shared, 64), m);
         s.Add<RecordResource>(s.Add<CountResource>(watched));
       },
       {},
       true,
       4096},
  };
  for (ResourceCase& one : cases) {
    one.device = device;
    one.name += suffix;
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(OnHost, ResourceContract, testing::ValuesIn(CasesOn(Host(), "")),
                         NameOfResourceCase);
INSTANTIATE_TEST_SUITE_P(OnDevice, ResourceContract,
                         testing::ValuesIn(CasesOn(SimulatedDevice::kDevice, "_on_device")),
                         NameOfResourceCase);
INSTANTIATE_TEST_SUITE_P(
    Guard, ResourceContract,
    testing::Values(ResourceCase{"guard_pages",
                                 [](ResourceStack& s, DeviceProvider&) { s.Add<GuardPages>(); },
                                 Host(), false, 4096},
                    ResourceCase{"guard_pages_of_owner",
                                 [](ResourceStack& s, DeviceProvider&) {
                                   s.Add<ReclaimingResource>(s.Add<BudgetedResource>(
                                       s.Add<GuardPages>(), &Owner(), "guarded pages"));
                                 },
                                 Host(), false, 4096}),
    NameOfResourceCase);

}  // namespace
}  // namespace tidepool
