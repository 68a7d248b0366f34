# SPDX-License-Identifier: Apache-2.0
"""What hvd.metrics() measures, for people (advise) and for Prometheus. See docs/metrics.md.

The text for Prometheus is served on request only: HOROVOD_METRICS_SOCKET names a Unix socket
(with .rankN after it) that only its owner can open, HOROVOD_METRICS_PORT a port of the loopback
interface (plus the local rank).
"""

from __future__ import annotations

import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Callable

_ALONE_HIGH = 0.9  # share of a step without a pending operation: computing is what takes long
_SMALL_BYTES = 65536  # mean size of a batch that is not worth its start
_BREAKS_HIGH = 0.05  # broken plans per step


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "0 %"


def _slow_ranks(measured: dict) -> list[str]:
    found = []
    for row in measured.get("ranks", []):
        if row["slow"] == "late submit":
            found.append(
                f"The other ranks wait for rank {row['rank']}: it computes or loads data for "
                f"{1000 * row['alone_s']:.1f} ms of a step of {1000 * row['step_s']:.1f} ms, "
                "longer than they do. Look at its data loader, its cores and other programs on "
                "its machine."
            )
        elif row["slow"] == "late transfer":
            found.append(
                f"The other ranks wait for data of rank {row['rank']}, which submits in time. Look "
                "at its cores, its memory and its links."
            )
    return found


def _communication(measured: dict, steps: dict) -> list[str]:
    counters = measured["counters"]
    moved = sum(kind["bytes"] for kind in measured["ops"].values())
    exposed_s = steps["sum_s"] - steps["sum_alone_s"]
    found = [
        f"Communication takes {_percent(exposed_s, steps['sum_s'])} of a step "
        f"({1000 * exposed_s / steps['count']:.1f} ms), in which "
        f"{moved / 1e6 / steps['count']:.1f} MB of this rank's tensors are combined."
    ]
    if counters["batches"] and moved / counters["batches"] < _SMALL_BYTES:
        found.append(
            f"Its batches are small: {moved / counters['batches'] / 1e3:.1f} kB on average. Submit "
            "more tensors before you wait for the first one, or use grouped operations; "
            "--autotune searches for a better cycle time."
        )
    else:
        found.append(
            "Larger batches per rank, fewer bytes (fp16 compression, backward_passes_per_step) or "
            "faster links shorten it."
        )
    return found


def advise(measured: dict) -> str:
    """One paragraph on what bounds the step of the rank that measured, and what to change."""
    steps = measured.get("steps", {})
    if measured.get("state") != "initialised":
        return "There is nothing to say yet: call this between hvd.init() and hvd.shutdown()."
    if not steps.get("count"):
        return (
            "No step has repeated yet. Give tensors the same names in every step; without that, "
            "nothing can be cached or planned either."
        )
    found = [f"A step takes {1000 * steps['sum_s'] / steps['count']:.1f} ms on average."]
    slow = _slow_ranks(measured)
    if slow:
        found += slow
    elif steps["sum_alone_s"] >= _ALONE_HIGH * steps["sum_s"]:
        alone_s = min(steps["sum_alone_s"], steps["sum_s"])  # it includes the step that runs
        found.append(
            f"Computing and loading data bound it: {_percent(alone_s, steps['sum_s'])}"
            " of the time no operation is pending. Communication is not worth tuning."
        )
    else:
        found += _communication(measured, steps)
    breaks = measured["counters"]["plan_breaks"]
    if breaks > 10 and breaks > _BREAKS_HIGH * steps["count"]:
        found.append(
            f"Steps differ: {breaks} plans were given up. Submit the same tensors in every step."
        )
    return " ".join(found)


# ---- Prometheus ----


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _samples(measured: dict) -> list[tuple[str, str, str, dict[str, str], float]]:
    """Name, type, help, labels, value."""
    rows: list[tuple[str, str, str, dict[str, str], float]] = []

    def add(name: str, type_: str, text: str, value: float, **labels: object) -> None:
        rows.append((name, type_, text, {k: str(v) for k, v in labels.items()}, value))

    for kind, row in measured.get("ops", {}).items():
        add("ops_total", "counter", "Completed operations.", row["count"], kind=kind)
        add("bytes_total", "counter", "Bytes of their inputs.", row["bytes"], kind=kind)
    for name, value in measured.get("counters", {}).items():
        add(f"{name}_total", "counter", "See docs/metrics.md.", value)
    for name, text in (
        ("wait_s", "From submission to the start, summed."),
        ("run_s", "From the start to completion, summed."),
        ("cpu_s", "Processor time of the process."),
    ):
        if name in measured:
            add(name.replace("_s", "_seconds_total"), "counter", text, measured[name])
    for mode in ("user", "system"):
        if f"{mode}_s" in measured.get("cpu", {}):
            text = "Processor time of the process."
            add("cpu_mode_seconds_total", "counter", text, measured["cpu"][f"{mode}_s"], mode=mode)
    if "pending" in measured:
        add("pending", "gauge", "Operations that are not complete.", measured["pending"])
    steps = measured.get("steps")
    if steps:
        add("steps_total", "counter", "Steps.", steps["count"])
        add("step_seconds_total", "counter", "Duration of all steps.", steps["sum_s"])
        add("alone_seconds_total", "counter", "Without a pending operation.", steps["sum_alone_s"])
    for row in measured.get("transports", []):
        add("transport_bytes_total", "counter", "Moved.", row["bytes"], transport=row["name"])
    for row in measured.get("awaits", []):
        add("awaits_seconds_total", "counter", "Waited for a rank.", row["s"], peer=row["rank"])
    for row in measured.get("links", []):
        link = {"peer": row["rank"], "transport": row["transport"]}
        for way, doing in (("sent", "send"), ("received", "receive")):
            add("link_bytes_total", "counter", "Moved.", row[f"{way}_bytes"], way=way, **link)
            seconds = row[f"{doing}_s"]
            add("link_seconds_total", "counter", "Busy.", seconds, way=way, **link)
    for row in measured.get("ranks", []):
        is_slow = row["slow"] != "none"
        add("slow", "gauge", "1: the rank is slow.", is_slow, peer=row["rank"], cause=row["slow"])
    return rows


def prometheus_text(measured: dict) -> str:
    """A reading of hvd.metrics() in the text format of Prometheus."""
    lines, known = [], set()
    rank = str(measured.get("rank", -1))
    for name, kind, text, labels, value in sorted(_samples(measured), key=lambda row: row[0]):
        full = f"horovod_{name}"
        if full not in known:
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
            known.add(full)
        pairs = ",".join(f'{k}="{_label(v)}"' for k, v in {"rank": rank, **labels}.items())
        lines.append(f"{full}{{{pairs}}} {float(value):g}")
    return "\n".join(lines) + "\n"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = 5  # seconds; a client that sends nothing does not keep the thread

    def do_GET(self) -> None:
        """Answer /metrics."""
        if self.path != "/metrics":
            self.send_error(404)
            return
        body = prometheus_text(self.server.read()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a request is not worth a line."""

    def address_string(self) -> str:
        """A Unix socket has none."""
        return "local"


class _Server(socketserver.TCPServer):
    allow_reuse_address = True
    read: Callable[[], dict]


class _UnixServer(_Server):
    address_family = socket.AF_UNIX


_servers: list[_Server] = []


def _start(server: _Server, read: Callable[[], dict]) -> None:
    server.read = read
    thread = threading.Thread(target=server.serve_forever, name="horovod-metrics", daemon=True)
    thread.start()
    _servers.append(server)


def _unix_server(path: str) -> _UnixServer:
    if os.path.exists(path):
        os.unlink(path)
    server = _UnixServer(path, _Handler, bind_and_activate=False)  # type: ignore[arg-type]
    server.server_bind()
    os.chmod(path, 0o600)  # before it listens: only the owner may connect
    server.server_activate()
    return server


def serve(read: Callable[[], dict], rank: int, local_rank: int) -> None:
    """Serve Prometheus's text where the environment asks for it; once per process."""
    path, port = os.environ.get("HOROVOD_METRICS_SOCKET"), os.environ.get("HOROVOD_METRICS_PORT")
    if _servers or not (path or port):
        return
    if path:
        _start(_unix_server(f"{path}.rank{rank}"), read)
    if port:
        _start(_Server(("127.0.0.1", int(port) + local_rank), _Handler), read)
