# SPDX-License-Identifier: Apache-2.0
"""Keys, and sums that only their holders can make."""

import hashlib
import hmac
import os

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
SECRET_LENGTH = 32
DIGEST_LENGTH = 32


def make_secret_key():
    return os.urandom(SECRET_LENGTH)


def compute_digest(key, message_bytes):
    return hmac.new(key, message_bytes, hashlib.sha256).digest()


def check_digest(key, message_bytes, digest):
    return hmac.compare_digest(compute_digest(key, message_bytes), digest)
