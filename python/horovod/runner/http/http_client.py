# SPDX-License-Identifier: Apache-2.0
"""Reading and writing a KVStoreServer.

With a key every request and every answer carries a sum that only holders of the key can make.
Objects are pickles, so they need one: without a key only bytes can be read, never an object.
"""

import hmac
import http.client
import time

import cloudpickle

from horovod.runner.http.authority import (
    KEY_NAME,
    SIGNATURE,
    key_from_environment,
    sign_answer,
    sign_request,
)

ATTEMPTS = 3
PAUSE_S = 0.5
TIMEOUT_S = 30
ANSWER_MAX = 512 << 20


def _request(method, addr, port, scope, key, body, secret):
    path = f"/{scope}/{key}"
    headers = {}
    if secret is not None:
        headers, nonce = sign_request(secret, method, path, body)
    connection = http.client.HTTPConnection(addr, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read(ANSWER_MAX + 1)
        if len(content) > ANSWER_MAX:
            raise RuntimeError(f"{path} has more than {ANSWER_MAX} bytes")
        if secret is not None:
            expected = sign_answer(secret, nonce, response.status, content)
            given = response.getheader(SIGNATURE, "").encode("latin-1", "replace")
            if not hmac.compare_digest(expected.encode(), given):
                raise PermissionError(f"the answer to {method} {path} was not made with our key")
        return response.status, content
    finally:
        connection.close()


def _retry(method, addr, port, scope, key, body, secret):
    for attempt in range(ATTEMPTS):
        try:
            return _request(method, addr, port, scope, key, body, secret)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, PermissionError) or attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE_S)
    return None


def read_bytes_from_kvstore(addr, port, scope, key, secret=None):
    """The bytes under a key; KeyError if there are none."""
    secret = secret if secret is not None else key_from_environment()
    status, content = _retry("GET", addr, port, scope, key, None, secret)
    if status == http.client.NOT_FOUND:
        raise KeyError(f"/{scope}/{key}")
    if status != http.client.OK:
        raise RuntimeError(f"GET /{scope}/{key} was answered with {status}")
    return content


def put_bytes_into_kvstore(addr, port, scope, key, value, secret=None):
    secret = secret if secret is not None else key_from_environment()
    status, _ = _retry("PUT", addr, port, scope, key, value, secret)
    if status != http.client.OK:
        raise RuntimeError(f"PUT /{scope}/{key} was answered with {status}")


def _secret_for_objects(secret):
    secret = secret if secret is not None else key_from_environment()
    if secret is None:
        raise PermissionError(
            "objects are pickles, which run code when they are read, so the store needs a key: "
            f"give `secret`, or set {KEY_NAME} for server and clients"
        )
    return secret


def read_data_from_kvstore(addr, port, scope, key, secret=None):
    """The object under a key, from a store that holds the same secret."""
    secret = _secret_for_objects(secret)
    return cloudpickle.loads(read_bytes_from_kvstore(addr, port, scope, key, secret))


def put_data_into_kvstore(addr, port, scope, key, value, secret=None):
    secret = _secret_for_objects(secret)
    put_bytes_into_kvstore(addr, port, scope, key, cloudpickle.dumps(value), secret)
