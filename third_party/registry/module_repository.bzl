"""A repository whose targets are those of a module, under the names that Tidepool gives them."""

_ALIAS = """
alias(
    name = {name},
    actual = {actual},
)
"""

def _module_repository_impl(ctx):
    packages = {}
    for target in ctx.attr.targets:
        package, _, name = target.rpartition(":")
        packages.setdefault(package, []).append(name)
    for package, names in packages.items():
        text = "package(default_visibility = [\"//visibility:public\"])\n"
        for name in names:
            actual = "@@%s//%s:%s" % (ctx.attr.module.repo_name, package, name)
            text += _ALIAS.format(name = repr(name), actual = repr(actual))
        ctx.file((package + "/" if package else "") + "BUILD.bazel", text)

module_repository = repository_rule(
    implementation = _module_repository_impl,
    doc = "Defines one alias for each of `targets` (\"package:name\") of the module.",
    attrs = {
        "module": attr.label(doc = "any label in it"),
        "targets": attr.string_list(),
    },
)
