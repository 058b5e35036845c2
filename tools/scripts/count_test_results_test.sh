#!/bin/bash
# Events and reports below are shortened from what Bazel 4.2 and GoogleTest 1.12 wrote.
source tools/scripts/expect.sh
cd "$TEST_TMPDIR" || exit
counter=$TEST_SRCDIR/$TEST_WORKSPACE/tools/scripts/count_test_results

configured() { echo '{"id":{"targetConfigured":{"label":"'"$1"'"}},"configured":{"targetKind":"cc_test rule","testSize":"SMALL"}}'; }
completed() { echo '{"id":{"targetCompleted":{"label":"'"$1"'"}},'"$2"'}'; }
built() { completed "$1" '"completed":{"success":true}'; }
# result LABEL STATUS REPORT [SHARD [ATTEMPT]]
result() {
  echo '{"id":{"testResult":{"label":"'"$1"'","run":1,"shard":'"${4:-1}"',"attempt":'"${5:-1}"'}},"testResult":{"testActionOutput":[{"name":"test.log","uri":"file:///x/test.log"},{"name":"test.xml","uri":"file://'"$PWD/$3"'"}],"status":"'"$2"'"}}'
}
# check WHAT EXPECTED EXPECTED_STATUS BAZEL_STATUS, events on stdin
check() {
  local output status
  cat >events.json
  output=$("$counter" events.json "$4" 2>stderr.txt)
  status=$?
  expect "$1" "$2" "$output"
  expect "$1: exit status" "$3" "$status"
}

cat >passing.xml <<'X'
<testsuites tests="6" failures="0" disabled="0" errors="0" time="0" name="AllTests">
  <testsuite name="A" tests="4" failures="0" disabled="0" skipped="0" errors="0" time="0">
    <testcase name="One" status="run" result="completed" classname="A" />
  </testsuite>
  <testsuite name="B" tests="2" failures="0" disabled="0" skipped="0" errors="0" time="0">
  </testsuite>
</testsuites>
X
cat >mixed.xml <<'X'
<testsuites tests="5" failures="1" disabled="1" errors="0" time="0" name="AllTests">
  <testsuite name="A" tests="5" failures="1" disabled="1" skipped="1" errors="0" time="0">
    <testcase name="Skips" status="run" result="skipped" classname="A">
      <skipped message="no GPU"><![CDATA[one line]]></skipped>
    <testcase name="Fails" status="run" result="completed" classname="A">
      <failure message="x" type=""><![CDATA[quoted output
  <testsuite name="inside" tests="100" failures="100" disabled="0" skipped="0" errors="0">
]]></failure>
  </testsuite>
</testsuites>
X
cat >timeout.xml <<'X'
<testsuites>
  <testsuite name="memory/slow_test" tests="1" failures="0" errors="1">
    <testcase name="memory/slow_test" status="run"><error message="exited with error code 142"></error></testcase>
  </testsuite>
</testsuites>
X
echo '<testsuites tests="0" failures="0" disabled="0" errors="0" name="AllTests"></testsuites>' >none.xml

{ configured //a:x; built //a:x; result //a:x PASSED passing.xml; } | check "all pass" "6 passed, 0 failed" 0 0
{ configured //a:x; built //a:x; result //a:x FAILED mixed.xml; } |
  check "every outcome, XML in a message" "2 passed, 1 failed, 2 skipped" 1 3
{
  for label in //a:x //a:y; do configured $label; built $label; done
  result //a:x PASSED passing.xml 1
  result //a:x PASSED passing.xml 2
  result //a:y TIMEOUT timeout.xml
} | check "two shards and a timeout" "12 passed, 1 failed" 1 3
{ configured //a:x; built //a:x; result //a:x FAILED timeout.xml 1 1; result //a:x PASSED passing.xml 1 2; } |
  check "flaky: the last attempt counts" "6 passed, 0 failed" 0 0
{ configured //a:x; built //a:x; result //a:x FAILED passing.xml; } |
  check "all cases passed, the process failed" "6 passed, 1 failed" 1 3
{ configured //a:x; built //a:x; result //a:x PASSED absent.xml; } | check "no report, passed" "1 passed, 0 failed" 0 0
{ configured //a:x; built //a:x; result //a:x FAILED absent.xml; } | check "no report, failed" "0 passed, 1 failed" 1 3
{ configured //a:x; built //a:x; result //a:x PASSED none.xml; } | check "all cases filtered" "0 passed, 0 failed" 0 0
{
  configured //a:x
  completed //a:x '"completed":{}'
  configured //a:y
  completed //a:y '"aborted":{"reason":"ANALYSIS_FAILURE"}'
  configured //a:z
  completed //a:z '"aborted":{"reason":"SKIPPED"}'
} | check "not built, not analysed, incompatible" "0 passed, 2 failed, 1 skipped" 1 1
{ configured //a:x; built //a:x; result //a:x PASSED passing.xml; completed //a:library '"completed":{}'; } |
  check "a library that does not build" "6 passed, 1 failed" 1 1
expect_contains "it says why" "bazel exited with status 1 though no test failed" "$(<stderr.txt)"
check "bazel did not start" "0 passed, 1 failed" 1 36 </dev/null
exit $((failures > 0))
