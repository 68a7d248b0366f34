# SPDX-License-Identifier: Apache-2.0
"""Run a shell command whose whole tree of processes ends with it, or with us.

The command gets its own session. A small shell stands between: it holds a pipe that only we have
the other end of, so when we die, even of kill -9, it kills the session. There is no re-import of
the caller's program, so none needs `if __name__ == '__main__'`.
"""

import codecs
import os
import re
import signal
import subprocess
import sys
import threading
import time

GRACEFUL_TERMINATION_TIME_S = 5
POLL_S = 0.05

# Runs $1; a watcher waits for stdin, our pipe, to close and then kills the whole session's group.
_MIDDLEMAN = r"""
exec 3<&0 </dev/null
(read -r _ <&3; kill -KILL -$$) 2>/dev/null &
_watch=$!
exec 3<&-
trap 'kill -KILL $_watch 2>/dev/null' EXIT
_command=$1
shift
eval "$_command"
"""


def _parents():
    """Parent by process, of all processes."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return found


def _descendants(pid):
    parents = _parents()
    found, front = [], [pid]
    while front:
        front = [child for child, parent in parents.items() if parent in front]
        found += front
    return found


def _signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def _is_over(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def terminate_executor_shell_and_children(pid):
    """SIGTERM to all that this process started, and after the grace time SIGKILL to them and to it.

    The process itself, a shell, gets that time too, so that it can tell how its child ended.
    """
    asked = _descendants(pid)
    _signal_all(asked, signal.SIGTERM)
    deadline = time.monotonic() + GRACEFUL_TERMINATION_TIME_S
    while time.monotonic() < deadline:
        if _is_over(pid) and all(_is_over(child) for child in asked):
            return
        time.sleep(POLL_S)
    _signal_all([pid], signal.SIGSTOP)
    _signal_all([*_descendants(pid), *asked], signal.SIGKILL)
    _signal_all([pid], signal.SIGKILL)


def prefix_connection(src_connection, dst_stream, prefix, index, prefix_output_with_timestamp):
    """Copies a binary stream to a text stream, each line with "[INDEX]<PREFIX>:" in front.

    A line ends with a line feed or a carriage return (progress bars).
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_start = True
    has_prefix = prefix is not None and index is not None

    def mark():
        when = time.asctime() if prefix_output_with_timestamp else ""
        return f"{when}[{index}]<{prefix}>:"

    while True:
        chunk = os.read(src_connection.fileno(), 1 << 16)
        text = decoder.decode(chunk, final=not chunk)
        for line in re.findall(r"[^\r\n]*[\r\n]|[^\r\n]+$", text):
            if has_prefix and is_start:
                dst_stream.write(mark())
            dst_stream.write(line)
            is_start = line[-1] in "\r\n"
        dst_stream.flush()
        if not chunk:
            break


def _forward(pipe, stream, prefix, index, timestamps):
    thread = threading.Thread(
        target=prefix_connection, args=(pipe, stream, prefix, index, timestamps), daemon=True
    )
    thread.start()
    return thread


def _create_event(ctx):
    """The event by which a running execute() can be ended; programs put their own in its place."""
    return ctx.Event()


def start_apart(command, env):
    """Start a command in a session of its own, with all its streams in pipes that we hold."""
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def execute(
    command,
    env=None,
    stdout=None,
    stderr=None,
    index=None,
    events=None,
    prefix_output_with_timestamp=False,
):
    """Run it by /bin/sh to its end and return its exit code, 128 + n if signal n ended it.

    `events` are threading or multiprocessing events: once one is set, the whole tree is ended.
    """
    ends = [_create_event(threading), *(events or [])]
    process = start_apart(["/bin/sh", "-c", _MIDDLEMAN, "sh", command], env)
    threads = [
        _forward(
            process.stdout, stdout or sys.stdout, "stdout", index, prefix_output_with_timestamp
        ),
        _forward(
            process.stderr, stderr or sys.stderr, "stderr", index, prefix_output_with_timestamp
        ),
    ]
    try:
        _wait(process, ends)
    except BaseException:
        terminate_executor_shell_and_children(process.pid)
        raise
    finally:
        code = process.wait()
        process.stdin.close()
        for thread in threads:
            thread.join(GRACEFUL_TERMINATION_TIME_S)
        process.stdout.close()
        process.stderr.close()
    return 128 - code if code < 0 else code


def _wait(process, events):
    while True:
        try:
            process.wait(POLL_S)
            return
        except subprocess.TimeoutExpired:
            if any(event.is_set() for event in events):
                terminate_executor_shell_and_children(process.pid)
                return
