"""Abseil's targets that Tidepool uses, under upstream's labels, and the system libraries behind them."""

_STATUS = ["-labsl_status", "-labsl_cord", "-labsl_str_format_internal", "-labsl_strings", "-labsl_raw_logging_internal"]
_SYNC = ["-labsl_synchronization", "-labsl_time", "-labsl_base", "-labsl_strings"]
_FLAGS = [
    "-labsl_flags_internal",
    "-labsl_flags_marshalling",
    "-labsl_flags_reflection",
    "-labsl_flags_program_name",
    "-labsl_flags_commandlineflag",
    "-labsl_flags_commandlineflag_internal",
    "-labsl_flags_config",
    "-labsl_flags_private_handle_accessor",
]

ABSL_LIBRARIES = {
    "absl/base:core_headers": [],
    "absl/cleanup:cleanup": [],
    "absl/container:flat_hash_map": ["-labsl_raw_hash_set", "-labsl_hash"],
    "absl/container:inlined_vector": [],
    "absl/debugging:symbolize": [
        "-labsl_symbolize",
        "-labsl_debugging_internal",
        "-labsl_demangle_internal",
        "-labsl_malloc_internal",
        "-labsl_raw_logging_internal",
        "-labsl_base",
        "-labsl_strings",
    ],
    "absl/flags:flag": _FLAGS,
    "absl/flags:parse": ["-labsl_flags_parse"] + _FLAGS,
    "absl/flags:reflection": _FLAGS,
    "absl/flags:usage": ["-labsl_flags_usage", "-labsl_flags_usage_internal"] + _FLAGS,
    "absl/functional:function_ref": [],
    "absl/status:status": _STATUS,
    "absl/status:statusor": ["-labsl_statusor"] + _STATUS,
    "absl/strings:strings": ["-labsl_strings"],
    "absl/strings:str_format": ["-labsl_str_format_internal", "-labsl_strings"],
    "absl/synchronization:synchronization": _SYNC,
    "absl/time:time": ["-labsl_time", "-labsl_strings"],
    "absl/types:span": ["-labsl_throw_delegate"],
}
