# SPDX-License-Identifier: Apache-2.0
"""Loss scaling of Keras 3 around a wrapped optimizer.

Keras' LossScaleOptimizer calls the optimizer it wraps only if the gradients are finite. Looking at
each rank's own gradients, ranks could decide differently: some would reduce, others not, for ever.
So the reduction is drawn out: gradients are reduced first, then looked at, and all ranks see the
same. Keras itself puts a LossScaleOptimizer around ours with the policy mixed_float16, so it is
Keras' class that is changed, once per process.
"""


def guard(keras):
    cls = getattr(keras.optimizers, "LossScaleOptimizer", None)
    if cls is None or not hasattr(cls, "stateless_apply") or "_hvd_guard" in vars(cls):
        return
    plain_apply = cls.apply

    def apply(self, grads, trainable_variables=None):
        from horovod._keras import is_wrapped

        inner = self.inner_optimizer
        if is_wrapped(self) or not is_wrapped(inner) or inner._hvd.aggregation is not None:
            return plain_apply(self, grads, trainable_variables)
        variables = trainable_variables
        if variables is None:
            variables = self._trainable_variables
        grads = inner._hvd.reduce(grads, variables)
        inner._hvd.is_reduced = True
        try:
            return plain_apply(self, grads, trainable_variables)
        finally:
            inner._hvd.is_reduced = False

    cls.apply = apply
    cls._hvd_guard = True
