# SPDX-License-Identifier: Apache-2.0
"""Exceptions that every framework's binding raises."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed: a peer died or disagreed, or Horovod was shut down.

    Elastic training catches it, goes back to the last committed state and starts anew.
    """

    @property
    def status(self) -> int | None:
        """The hvd_status_t of what failed; None if it does not come from the core."""
        return getattr(self.args[0] if self.args else None, "status", None)


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed; raised between steps of elastic training.

    `skip_sync` is true when hosts were only removed: no new worker needs the state then.
    """

    def __init__(self, skip_sync):
        super().__init__()
        self.skip_sync = skip_sync


class WorkerRemovedExit(SystemExit):
    """This worker is not a member of the elastic job any more: hvd.init() ends it, with code 0.

    Raised on workers of a host that was removed, after hvd.elastic.leave(), and in spare workers
    when the job is over. Nobody catches SystemExit by mistake, and the interpreter exits in good
    order.
    """

    def __init__(self, reason=""):
        super().__init__(0)
        self.reason = reason

    def __str__(self):
        return f"This worker was removed from the elastic job: {self.reason}"


def get_version_mismatch_message(name, version, installed_version):
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}. "
        "Horovod does not depend on the framework's version; this message comes from metadata.json."
    )


class HorovodVersionMismatchError(ImportError):
    """metadata.json names another version of the framework than the one that is installed."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
