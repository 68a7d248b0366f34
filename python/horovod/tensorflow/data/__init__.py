# SPDX-License-Identifier: Apache-2.0
"""tf.data service: datasets computed by other processes than those that train."""
