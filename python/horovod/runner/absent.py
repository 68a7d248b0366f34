# SPDX-License-Identifier: Apache-2.0
"""For names of the original launcher that have no counterpart: importing one says why.

`from module import name` raises ImportError with the reason, where Python's own would say only
that there is no such name. Any other access raises AttributeError, so that hasattr() and getattr()
with a default work as for every module.
"""

import dis
import sys

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def _is_import(frame):
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def refuse_names(module, reason):
    """The __getattr__ of a module all of whose other names are absent for this reason."""

    def __getattr__(name):  # noqa: N807
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        kind = ImportError if _is_import(sys._getframe(1)) else AttributeError
        raise kind(f"{module}.{name} does not exist: {reason}")

    return __getattr__
