# SPDX-License-Identifier: Apache-2.0
"""For names of the original launcher that have no counterpart: importing one says why."""


def refuse_names(module, reason):
    """The __getattr__ of a module all of whose other names are absent for this reason."""

    def __getattr__(name):  # noqa: N807
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise ImportError(f"{module}.{name} does not exist: {reason}")

    return __getattr__
