"""shared_library: a cc_binary with linkshared, of objects that are compiled for it.

Programs share one set of objects that are not position independent (.bazelrc); this takes that back for what it holds.
"""

_FEATURES = "//command_line_option:features"

def _position_independent_impl(settings, _attr):
    return {_FEATURES: [feature for feature in settings[_FEATURES] if feature != "-supports_pic"]}

_position_independent = transition(
    implementation = _position_independent_impl,
    inputs = [_FEATURES],
    outputs = [_FEATURES],
)

def _shared_library_impl(ctx):
    library = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = library, target_file = ctx.files.binary[0])
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library]))]

shared_library = rule(
    implementation = _shared_library_impl,
    attrs = {
        "binary": attr.label(cfg = _position_independent, doc = "A cc_binary with linkshared, tagged manual."),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
