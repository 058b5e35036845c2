"""cuda_bundle: a folder with programs that runs on a machine with a CUDA device and nothing else."""

def _cuda_bundle_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    programs = [target[DefaultInfo].files_to_run.executable for target in ctx.attr.programs]
    ctx.actions.run(
        executable = ctx.executable._maker,
        arguments = [folder.path, ":".join([
            "%s=%s" % (file.path, file.short_path)
            for file in ctx.files.data
        ] + [
            "%s=%s" % (file.path, file.basename)
            for file in ctx.files.scripts + ctx.files._run_all
        ])] + [program.path for program in programs],
        inputs = programs + ctx.files.data + ctx.files.scripts + ctx.files._run_all,
        outputs = [folder],
        mnemonic = "CudaBundle",
        progress_message = "Making %s" % ctx.label,
        use_default_shell_env = True,
    )
    return [DefaultInfo(
        files = depset([folder]),
        runfiles = ctx.runfiles(files = [folder]),
    )]

cuda_bundle = rule(
    implementation = _cuda_bundle_impl,
    attrs = {
        "programs": attr.label_list(doc = "Tests are named *_test, benchmarks *_benchmark."),
        "data": attr.label_list(
            allow_files = True,
            doc = "Files of the repository that tests read, kept at their paths.",
        ),
        "scripts": attr.label_list(allow_files = True, doc = "Kept beside run_all.py."),
        "_maker": attr.label(
            default = Label("//tools/cuda_bundle:make_bundle.sh"),
            allow_single_file = True,
            executable = True,
            cfg = "host",
        ),
        "_run_all": attr.label(
            default = Label("//tools/cuda_bundle:run_all"),
            allow_files = True,
        ),
    },
)
