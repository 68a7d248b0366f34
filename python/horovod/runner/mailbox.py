# SPDX-License-Identifier: Apache-2.0
"""How the function of horovod.run() reaches the ranks and how their results come back.

Both are pickles, so they may only come from somebody who is allowed to run code as us:

* On the host of the caller, and wherever its folder is seen, they are files in a folder that is
  ours and closed to everybody else (0700, not a symbolic link, files 0600). The kernel vouches.
* On other hosts they are entries of the job's rendezvous store, which talks only to those who hold
  the job's key. The launcher fills it from the folder and empties it into the folder.

Nothing is unpickled before that has been established.
"""

import os
import stat
from pathlib import Path

CALL = "call"
SCOPE = "runfunc"
CHUNK_BYTES = 32 << 20  # of one entry of the store, which takes 64 MiB at most
STORE_TIMEOUT_S = 60


class MailboxError(RuntimeError):
    """The function or a result can't be handed over safely."""


def is_private_folder(path):
    """Is this a folder of ours that nobody else can enter?"""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and stat.S_IMODE(info.st_mode) & 0o077 == 0
    )


class Folder:
    """Entries are files. A file is whole or absent: it is renamed into place."""

    def __init__(self, path):
        if not is_private_folder(path):
            raise MailboxError(f"{path} is not a folder that only its owner, you, can enter")
        self.path = Path(path)

    def put(self, name, blob):
        part = self.path / f".{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            file.write(blob)
        os.rename(part, self.path / name)

    def get(self, name):
        """The bytes of an entry, or None if there is no such entry."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self.path / name, flags)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                raise MailboxError(f"{self.path / name} is not a file of yours")
            return file.read()


def _key_of_job():
    """The job's key, without using it up: hvd.init() reads the same descriptor later."""
    number = os.environ.get("HOROVOD_KEY_FD", "")
    if not number.isdigit():
        raise MailboxError(
            "this rank sees neither the caller's folder nor a job key (HOROVOD_KEY_FD); "
            "were the ranks started by horovodrun?"
        )
    text = os.pread(int(number), 66, 0).strip()
    if len(text) != 64:
        raise MailboxError("HOROVOD_KEY_FD holds no job key")
    return bytes.fromhex(text.decode("ascii"))


class Store:
    """Entries are chunks in the rendezvous store: NAME.0, NAME.1, ..., and NAME for their count."""

    def __init__(self):
        from horovod.common.library import native

        addresses = os.environ.get("HOROVOD_RENDEZVOUS", "")
        if not addresses:
            raise MailboxError("HOROVOD_RENDEZVOUS does not say where the ranks meet")
        self._native = native
        self._client = native.store_open(addresses, _key_of_job(), STORE_TIMEOUT_S)

    def put(self, name, blob):
        view = memoryview(blob)
        count = max(1, -(-len(view) // CHUNK_BYTES))
        for i in range(count):
            chunk = bytes(view[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES])
            self._native.store_put(self._client, SCOPE, f"{name}.{i}", chunk, STORE_TIMEOUT_S)
        self._native.store_put(self._client, SCOPE, name, b"%d" % count, STORE_TIMEOUT_S)

    def get(self, name):
        count = self._native.store_get(self._client, SCOPE, name, 0)
        if count is None:
            return None
        chunks = []
        for i in range(int(count)):
            chunk = self._native.store_get(self._client, SCOPE, f"{name}.{i}", STORE_TIMEOUT_S)
            if chunk is None:
                return None
            chunks.append(chunk)
        return b"".join(chunks)


def mailbox_of_rank(path):
    """The folder if it is here and ours, else the store."""
    return Folder(path) if is_private_folder(path) else Store()
