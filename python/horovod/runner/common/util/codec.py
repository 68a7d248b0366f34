# SPDX-License-Identifier: Apache-2.0
"""Python objects as text.

loads_base64() runs whatever code the text holds: give it only what you wrote yourself. Nothing in
this package gives it anything that came over a network.
"""

import base64

import cloudpickle


def dumps_base64(obj, to_ascii=True):
    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded):
    return cloudpickle.loads(base64.b64decode(encoded))
