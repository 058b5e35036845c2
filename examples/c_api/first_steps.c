#include <stdio.h>
#include <stdlib.h>

#include "tidepool/tools/c_api/tidepool.h"

static void Check(tidepool_status status) {
  if (status == TIDEPOOL_OK) return;
  fprintf(stderr, "%s: %s\n", tidepool_status_name(status), tidepool_error_message());
  exit(1);
}

int main(void) {
  const int64_t shape[] = {1024, 256}, columns[] = {256};
  tidepool_workspace workspace;
  Check(tidepool_workspace_new("step", "{\"policy_learning\": \"kOptimized\"}", NULL, &workspace));
  tidepool_operator sum, add;
  Check(tidepool_operator_new("sum", "{\"axes\": [0]}", &sum));
  Check(tidepool_operator_new("add", NULL, &add));
  tidepool_array total;  // outlives the steps: no workspace is open here
  Check(tidepool_array_full(NULL, TIDEPOOL_FLOAT32, 1, columns, 0, &total));
  for (int step = 0; step < 1000; ++step) {
    tidepool_array x, y, z;
    Check(tidepool_workspace_begin(workspace));  // one cycle: what is made here lives here
    Check(tidepool_array_full(NULL, TIDEPOOL_FLOAT32, 2, shape, step, &x));
    Check(tidepool_call("scale_shift", "{\"scale\": 2, \"shift\": 1}", &x, 1, &y, 1));
    Check(tidepool_operator_run(sum, &y, 1, &z, 1));
    const tidepool_array operands[] = {total, z};
    Check(tidepool_operator_run_into(add, operands, 2, &total, 1));
    tidepool_array_release(x);
    tidepool_array_release(y);
    tidepool_array_release(z);
    Check(tidepool_workspace_end(workspace));  // the pages stay
  }
  float sums[256];
  Check(tidepool_array_read(total, sums, sizeof sums));
  printf("sum %.0f\n", sums[0] / 1024);
  tidepool_array_release(total);
  tidepool_operator_release(sum);
  tidepool_operator_release(add);
  Check(tidepool_workspace_release(workspace));
  return 0;
}
