# SPDX-License-Identifier: Apache-2.0
"""The small problem with whichever Keras tf.keras is; importing this calls hvd.init()."""

import horovod.tensorflow as hvd
import tensorflow as tf
from small_fit import SmallFit

keras = tf.keras
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TASK = SmallFit(keras, RANK, SIZE)
IS_KERAS_3 = hasattr(keras.optimizers.SGD, "stateless_apply")
