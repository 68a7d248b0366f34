# SPDX-License-Identifier: Apache-2.0
"""Writes what hvd.metrics() measures as curves for TensorBoard. See docs/metrics.md."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from horovod.common.names import metrics

_Opened = tuple[Callable[[str, float, int], Any], Callable[[], Any]]  # add a point, close


def _tensorflow(log_dir: str) -> _Opened:
    tf = importlib.import_module("tensorflow")
    importlib.import_module("tensorboard")  # tf.summary.scalar() needs it
    writer = tf.summary.create_file_writer(log_dir)

    def add(name: str, value: float, step: int) -> None:
        with writer.as_default():
            tf.summary.scalar(name, value, step=step)

    return add, writer.close


def _module(module: str) -> Callable[[str], _Opened]:
    def make(log_dir: str) -> _Opened:
        writer = importlib.import_module(module).SummaryWriter(log_dir)
        return writer.add_scalar, writer.close

    return make


_WRITERS = (_module("torch.utils.tensorboard"), _module("tensorboardX"), _tensorflow)


def _open(log_dir: str) -> _Opened:
    reasons = []
    for make in _WRITERS:
        try:
            return make(log_dir)
        except ImportError as error:
            reasons.append(str(error))
    raise ImportError(
        "horovod: nothing here can write files for TensorBoard "
        f"({'; '.join(reasons)}). Install one with: pip install tensorboard (with PyTorch), "
        "pip install tensorboardX, or pip install tensorflow tensorboard"
    )


def _rate(name: str, now: dict, before: dict, per: float) -> float:
    return (now[name] - before.get(name, 0)) / per


def _rates(before: dict, now: dict, seconds: float) -> dict[str, float]:
    """Curves by name, of the time between two readings; none if the ranks have met anew since."""
    if before["epoch"] != now["epoch"] or seconds <= 0:
        return {}
    rates = {f"{name}_per_s": _rate(name, now, before, seconds) for name in ("wait_s", "run_s")}
    steps = now["steps"]["count"] - before["steps"]["count"]
    if steps > 0:
        rates["step_s"] = _rate("sum_s", now["steps"], before["steps"], steps)
        rates["alone_s"] = _rate("sum_alone_s", now["steps"], before["steps"], steps)
    for kind, row in now["ops"].items():
        was = before["ops"].get(kind, {})
        rates[f"{kind}/ops_per_s"] = _rate("count", row, was, seconds)
        rates[f"{kind}/bytes_per_s"] = _rate("bytes", row, was, seconds)
    old = {link["rank"]: link for link in before.get("links", [])}
    for link in now.get("links", []):
        for way in ("sent_bytes", "received_bytes"):
            name = f"link_{link['rank']}/{way}_per_s"
            rates[name] = _rate(way, link, old.get(link["rank"], {}), seconds)
    return rates


class MetricsWriter:
    """Curves of this rank's metrics: `write(step)` now and then, `close()` at the end.

    Each rank writes to its own folder, `LOG_DIR/rank.N`. To be made after hvd.init().
    """

    def __init__(self, log_dir: str) -> None:
        self._before, self._before_s = metrics(), time.monotonic()
        if self._before["state"] != "initialised":
            raise ValueError("horovod: call hvd.init() before MetricsWriter()")
        self._add, self._close = _open(f"{log_dir}/rank.{self._before['rank']}")

    def write(self, step: int) -> None:
        """One point of each curve: what has happened since the last call."""
        now, now_s = metrics(), time.monotonic()
        if now["state"] != "initialised":
            return
        for name, value in _rates(self._before, now, now_s - self._before_s).items():
            self._add(f"horovod/{name}", value, step)
        self._before, self._before_s = now, now_s

    def close(self) -> None:
        """Write what is left."""
        self._close()
