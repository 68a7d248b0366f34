# SPDX-License-Identifier: Apache-2.0
"""What was found out about hosts before, kept for an hour in a JSON file of the user."""

import hashlib
import json
import os
import threading
import time
from pathlib import Path


def parameters_hash(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Cache:
    """Keys and values are whatever JSON can hold; a file that is anything else counts as empty."""

    def __init__(self, cache_folder, cache_staleness_threshold_in_minutes, parameters_hash):
        self._path = Path(cache_folder) / "cache.json"
        self._limit_s = cache_staleness_threshold_in_minutes * 60
        self._parameters = parameters_hash
        self._lock = threading.Lock()
        Path(cache_folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._content = self._load()

    def _load(self):
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict) or content.get("parameters") != self._parameters:
            return {}
        entries = content.get("entries")
        return entries if isinstance(entries, dict) else {}

    def get(self, key):
        with self._lock:
            entry = self._content.get(json.dumps(key))
        if not isinstance(entry, list) or len(entry) != 2 or time.time() - entry[0] > self._limit_s:
            return None
        return entry[1]

    def put(self, key, val):
        with self._lock:
            self._content[json.dumps(key)] = [time.time(), val]
            text = json.dumps({"parameters": self._parameters, "entries": self._content})
            part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, self._path)


def use_cache():
    """A decorator: with the argument fn_cache=Cache(...) equal calls give the kept result."""

    def decorate(func):
        def call(*args, **kwargs):
            cache = kwargs.pop("fn_cache", None)
            if cache is None:
                return func(*args, **kwargs)
            key = [func.__name__, repr(args), repr(sorted(kwargs.items()))]
            kept = cache.get(key)
            if kept is not None:
                return kept
            result = func(*args, **kwargs)
            if result is not None:
                cache.put(key, result)
            return result

        return call

    return decorate
