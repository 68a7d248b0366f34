# SPDX-License-Identifier: Apache-2.0
"""Calls in other threads."""

import queue
import threading

MAX_CONCURRENT_EXECUTIONS = 1000


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Start it and return the thread; `silent` keeps exceptions from being printed."""
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple, not {type(args)}, for a single argument use (arg,)"
        )

    def call(*given):
        try:
            target(*given)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=call, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False):
    """Call the function once the event is set, unless `stop` is set before. Returns the thread."""
    if event is None:
        raise ValueError("event is None")
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple, not {type(args)}, for a single argument use (arg,)"
        )

    def wait():
        while not event.wait(check_stop_interval_s if stop is not None else None):
            if stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn, args_list, block_until_all_done=True, max_concurrent_executions=MAX_CONCURRENT_EXECUTIONS
):
    """fn(*args) for all, at most so many at once; the results by the index of their arguments."""
    waiting, results = queue.Queue(), {}
    for item in enumerate(args_list):
        waiting.put(item)

    def work():
        while True:
            try:
                index, args = waiting.get_nowait()
            except queue.Empty:
                return
            results[index] = fn(*args)

    count = min(max_concurrent_executions, len(args_list))
    threads = [in_thread(work, daemon=not block_until_all_done) for _ in range(count)]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    if len(results) != len(args_list):
        raise RuntimeError(f"Some threads for func {fn.__name__} did not complete successfully.")
    return results
