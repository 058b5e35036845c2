"""Every rule that Bazel's releases have in different places, so that one tree serves them all.

Bazel 4 to 7 have them built in, 8 hands them over, 9 has them in @rules_cc and @rules_shell alone. BUILD files and
macros of this repository load them from here and nowhere else (//tools/lint:native_rules_test).

They come by way of a repository that tidepool_deps() makes (third_party/deps.bzl), whose name is what Bazel says where a
WORKSPACE.bazel names Tidepool and does not call it.
"""

load(
    "@tidepool_deps_was_not_called//:rules.bzl",
    _ACTION_NAMES = "ACTION_NAMES",
    _CcInfo = "CcInfo",
    _cc_binary = "cc_binary",
    _cc_common = "cc_common",
    _cc_library = "cc_library",
    _cc_test = "cc_test",
    _find_cc_toolchain = "find_cc_toolchain",
    _sh_test = "sh_test",
)

ACTION_NAMES = _ACTION_NAMES
CcInfo = _CcInfo
cc_binary = _cc_binary
cc_common = _cc_common
cc_library = _cc_library
cc_test = _cc_test
find_cc_toolchain = _find_cc_toolchain
sh_test = _sh_test
