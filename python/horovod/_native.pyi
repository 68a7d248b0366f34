# SPDX-License-Identifier: Apache-2.0
# The native module (bindings/python), for type checkers. It is private; its functions say in their
# docstrings what they take.
from typing import Any

class StatusError(RuntimeError):
    status: int
    status_class: int

class TensorError(ValueError): ...

def __getattr__(name: str) -> Any: ...
