# SPDX-License-Identifier: Apache-2.0
"""Reading and writing a KVStoreServer, which is a store of libhorovod (see store.py).

Without the store's key nothing can be read or written. Objects are pickles; they are read only out
of a store that has proven the key, in which nobody without it can have put anything.
"""

import cloudpickle

from horovod.runner.http.store import KEY_NAME, VALUE_MAX, Client, key_from_environment


def _client(addr, port, secret):
    secret = secret if secret is not None else key_from_environment()
    if secret is None:
        raise PermissionError(
            "the store needs a key, or anybody could put code into it that others run: give "
            f"`secret`, or set {KEY_NAME} for server and clients"
        )
    return Client(addr, int(port), secret)


def read_bytes_from_kvstore(addr, port, scope, key, secret=None):
    """The bytes under a key; KeyError if there are none."""
    value = _client(addr, port, secret).get(scope, key)
    if value is None:
        raise KeyError(f"/{scope}/{key}")
    return value


def put_bytes_into_kvstore(addr, port, scope, key, value, secret=None):
    if len(value) > VALUE_MAX:
        raise ValueError(f"/{scope}/{key}: {len(value)} bytes, and {VALUE_MAX} are allowed")
    _client(addr, port, secret).put(scope, key, value)


def read_data_from_kvstore(addr, port, scope, key, secret=None):
    """The object under a key, from a store that holds the same secret."""
    return cloudpickle.loads(read_bytes_from_kvstore(addr, port, scope, key, secret))


def put_data_into_kvstore(addr, port, scope, key, value, secret=None):
    put_bytes_into_kvstore(addr, port, scope, key, cloudpickle.dumps(value), secret)
