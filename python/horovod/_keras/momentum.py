# SPDX-License-Identifier: Apache-2.0
"""SGD's momentum, seen by graphs that exist already when a callback changes it.

Keras writes the number into the graph of a training step. The wrapped optimizer gives graphs a
number that becomes, where it is turned into a tensor, the value of a variable; eager code and files
get the plain number.
"""

import tensorflow as tf

_NUMBER, _VARIABLE = "_hvd_momentum", "_hvd_momentum_variable"


class _Live(float):
    """Compares as the number it was, computes as the variable is."""

    def __new__(cls, number, variable):
        self = super().__new__(cls, number)
        self.variable = variable
        return self

    def __tf_tensor__(self, dtype=None, name=None):
        return tf.cast(self.variable, dtype or tf.float32, name=name)


def _is_in_graph():
    return not tf.executing_eagerly() and tf.compat.v1.executing_eagerly_outside_functions()


def _get(self):
    members = self.__dict__
    number = members.get(_NUMBER)
    if not isinstance(number, float) or number == 0.0 or not _is_in_graph():
        return number
    if _VARIABLE not in members:
        with tf.init_scope():
            # Past Keras' tracking: it must not be saved.
            members[_VARIABLE] = tf.Variable(number, trainable=False, dtype=tf.float32)
    return _Live(number, members[_VARIABLE])


def _set(self, value):
    members = self.__dict__
    members[_NUMBER] = value
    if _VARIABLE in members and isinstance(value, (int, float)):
        members[_VARIABLE].assign(float(value))


def members_of(base):
    """A property for subclasses of SGD that compute as SGD does; nothing for others."""

    class Members:
        pass

    sgd = next((cls for cls in base.__mro__ if cls.__name__ == "SGD"), None)
    if sgd is not None and base.update_step is sgd.update_step:
        Members.momentum = property(_get, _set)
    return Members
