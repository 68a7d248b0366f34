# SPDX-License-Identifier: Apache-2.0
"""Loss scaling of Keras 3 around a wrapped optimizer.

Keras' LossScaleOptimizer calls the optimizer it wraps only if the gradients are finite. Looking at
each rank's own gradients, ranks could decide differently: some would reduce, others not, for ever.
So the reduction is drawn out: gradients are reduced first, then looked at, and all ranks see the
same. Keras itself puts a LossScaleOptimizer around ours with the policy mixed_float16, so it is
Keras' class that is changed, once per process.
"""

import contextlib


@contextlib.contextmanager
def _reduced(scaler, grads, variables):
    """Gives the gradients, reduced if an optimizer inside would; it then does not do so again."""
    from horovod._keras import is_wrapped

    inner = scaler.inner_optimizer
    if is_wrapped(scaler) or not is_wrapped(inner) or inner._hvd.is_inside:
        yield grads
        return
    variables = scaler._trainable_variables if variables is None else variables
    grads = inner._hvd.reduce_once(grads, variables)
    with inner._hvd.inside():
        yield grads


def guard(keras):
    cls = getattr(keras.optimizers, "LossScaleOptimizer", None)
    if cls is None or not hasattr(cls, "stateless_apply") or "_hvd_guard" in vars(cls):
        return
    plain_apply, plain_stateless_apply = cls.apply, cls.stateless_apply

    def apply(self, grads, trainable_variables=None):
        with _reduced(self, grads, trainable_variables) as reduced:
            return plain_apply(self, reduced, trainable_variables)

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        with _reduced(self, grads, None) as reduced:
            return plain_stateless_apply(self, optimizer_variables, reduced, trainable_variables)

    cls.apply, cls.stateless_apply = apply, stateless_apply
    cls._hvd_guard = True
