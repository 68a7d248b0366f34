# SPDX-License-Identifier: Apache-2.0
"""Sums that prove, on a request and on its answer, that their sender holds the key.

A request's sum covers method, path, time, a nonce and the body; an answer's covers the nonce of its
request, the status and the body. A server refuses times that are too far off and nonces that it has
seen, so nothing can be replayed, and an answer can't be passed off as another's.
"""

import hashlib
import hmac
import os
import time

KEY_NAME = "HOROVOD_KEY"
SIGNATURE = "X-Horovod-Signature"
NONCE = "X-Horovod-Nonce"
TIME = "X-Horovod-Time"
NONCE_BYTES = 16
SKEW_S = 120
NONCES_MAX = 1 << 16


def key_from_environment():
    """32 bytes, or None. A rank that has called hvd.init() has none: the core wipes it."""
    text = os.environ.get(KEY_NAME, "")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == 32 else None


def _sum(key, *parts):
    total = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()


def sign_request(key, method, path, body):
    """The headers of a request, and its nonce."""
    nonce, now = os.urandom(NONCE_BYTES).hex(), str(int(time.time()))
    digest = _sum(key, "request", method, path, now, nonce, body or b"")
    return {SIGNATURE: digest, NONCE: nonce, TIME: now}, nonce


def sign_answer(key, nonce, status, body):
    return _sum(key, "answer", nonce, int(status), body or b"")


class Guard:
    """Says whether a request is genuine and new."""

    def __init__(self, key):
        self._key = key
        self._seen = {}

    def admits(self, method, path, headers, body):
        digest, nonce, when = (headers.get(name, "") for name in (SIGNATURE, NONCE, TIME))
        expected = _sum(self._key, "request", method, path, when, nonce, body or b"")
        if not hmac.compare_digest(expected.encode(), digest.encode("latin-1", "replace")):
            return False
        now = time.time()
        if not when.isdigit() or abs(now - int(when)) > SKEW_S or nonce in self._seen:
            return False
        if len(self._seen) >= NONCES_MAX:
            self._seen = {n: t for n, t in self._seen.items() if now - t <= 2 * SKEW_S}
            if len(self._seen) >= NONCES_MAX:
                return False
        self._seen[nonce] = now
        return True
