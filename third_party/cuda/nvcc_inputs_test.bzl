"""nvcc_inputs_test: what nvcc reads is known to Bazel as inputs, so that another toolkit compiles anew."""

_Inputs = provider(doc = "Paths of what NvccCompile actions read.", fields = ["paths"])

def _inputs_impl(target, _ctx):
    paths = {}
    for action in target.actions:
        if action.mnemonic == "NvccCompile":
            paths.update({file.path: True for file in action.inputs.to_list()})
    return [_Inputs(paths = paths.keys())]

_inputs = aspect(implementation = _inputs_impl)

def _nvcc_inputs_test_impl(ctx):
    paths = ctx.attr.target[_Inputs].paths
    missing = [end for end in ctx.attr.ends if not [path for path in paths if path.endswith(end)]]
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    text = "echo '%d inputs of nvcc, missing: %s'; exit %d\n" % (len(paths), " ".join(missing), 1 if missing else 0)
    ctx.actions.write(script, "#!/bin/sh\n" + text, is_executable = True)
    return [DefaultInfo(executable = script)]

nvcc_inputs_test = rule(
    implementation = _nvcc_inputs_test_impl,
    test = True,
    attrs = {
        "target": attr.label(aspects = [_inputs], doc = "The objects of a cuda_library: its name with _nvcc."),
        "ends": attr.string_list(doc = "How the path of some input must end."),
    },
)
