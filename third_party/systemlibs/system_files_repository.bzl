"""A repository of files, other than libraries, that the system already has installed."""

def _system_files_repository_impl(ctx):
    for name, path in ctx.attr.files.items():
        if not ctx.path(path).exists:
            fail("@%s needs %s; run: apt-get install %s" % (ctx.name, path, ctx.attr.debian_package))
        ctx.symlink(path, name)
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD.bazel", "exports_files(%r)\n" % ctx.attr.files.keys())

system_files_repository = repository_rule(
    implementation = _system_files_repository_impl,
    doc = "Exports `files` (name -> path on the system). A missing package stops the build with the command that installs it.",
    local = True,
    attrs = {
        "files": attr.string_dict(),
        "debian_package": attr.string(),
    },
)
