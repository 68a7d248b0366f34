# SPDX-License-Identifier: Apache-2.0
"""Keras models whose steps XLA would compile.

Collectives inside a compiled step go by a custom call where this TensorFlow offers it, and only if
the user asked for compilation. Keras' own choice ("auto") is turned to no, with one line that says
so: the step then overlaps communication with computation, which the compiled one can't.
"""

import sys


def _tell(basics, text):
    if not basics.is_initialized() or basics.rank() == 0:
        print(f"horovod.keras: {text}", file=sys.stderr, flush=True)


def _has_wrapped_optimizer(model):
    from horovod._keras import is_wrapped

    optimizer = getattr(model, "optimizer", None)
    return is_wrapped(optimizer) or is_wrapped(getattr(optimizer, "inner_optimizer", None))


def _trainer_of(keras):
    """The class that decides, in Keras 3; None in Keras 2, which never decides on its own."""
    for cls in keras.Model.__mro__:
        if "_resolve_auto_jit_compile" in vars(cls) and "jit_compile" in vars(cls):
            return cls
    return None


def guard(keras, bridge):
    """Once per process: models with a wrapped optimizer are compiled only if that works."""
    if bridge.__name__ != "horovod._keras.on_tensorflow":
        return  # PyTorch and JAX call back from compiled steps
    from horovod.tensorflow import xla_ops

    trainer, basics = _trainer_of(keras), bridge.basics
    if trainer is None or getattr(trainer, "_hvd_jit_guard", False):
        return
    resolve = trainer._resolve_auto_jit_compile
    chosen = trainer.jit_compile

    def resolve_auto(self):
        is_on = resolve(self)
        if is_on and _has_wrapped_optimizer(self):
            _tell(basics, "jit_compile='auto' means False for a model with a Horovod optimizer.")
            return False
        return is_on

    def set_jit_compile(self, value):
        if value and _has_wrapped_optimizer(self) and not xla_ops.is_available():
            _tell(
                basics,
                "jit_compile=True is switched off: this TensorFlow offers no way to call "
                "collectives from a compiled step.",
            )
            value = False
        chosen.fset(self, value)

    trainer._resolve_auto_jit_compile = resolve_auto
    trainer.jit_compile = property(chosen.fget, set_jit_compile)
    trainer._hvd_jit_guard = True
