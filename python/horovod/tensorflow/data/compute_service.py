# SPDX-License-Identifier: Apache-2.0
"""tf.data service beside Horovod: where it is, how a rank uses it, what a compute worker does."""

import argparse
import contextlib
import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util import secret


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """How to reach the compute service; handed from its job to the training job as a file."""

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: dict
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose=1):
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self):
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        config["key"] = self.key.hex()
        return config

    @staticmethod
    def from_dict(config):
        config = dict(config)
        config["key"] = bytes.fromhex(config["key"])
        config["addresses"] = {
            name: [tuple(pair) for pair in pairs] for name, pairs in config["addresses"].items()
        }
        return TfDataServiceConfig(**config)

    def write(self, filename):
        """A reader sees the whole file or none; only its owner may read it: it holds the key."""
        path = Path(filename)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
        ) as file:
            json.dump(self.to_dict(), file)
        os.rename(file.name, path)

    @staticmethod
    def read(filename, wait_for_file_creation=False):
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(1)
        with open(filename, encoding="utf-8") as file:
            return TfDataServiceConfig.from_dict(json.load(file))


# ---- the job that computes ----


def parse_arguments():
    """The command line of the job."""
    parser = argparse.ArgumentParser(description="tf.data compute worker")
    parser.add_argument("configfile", help="file to write, for the training job to read")
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for others")
    return parser.parse_args()


def check_size(size, dispatchers):
    """ValueError unless every dispatcher gets the same number of workers."""
    if size % dispatchers:
        raise ValueError(
            f"Number of processes ({size}) must be a multiple of number of dispatchers "
            f"({dispatchers})."
        )


def open_service(size, dispatchers, dispatcher_side, configfile, timeout):
    """Start the service at which all meet, and write its configuration; returns both."""
    key = secret.make_secret_key()
    service = ComputeService(dispatchers, size // dispatchers, key=key)
    config = TfDataServiceConfig(
        dispatchers=dispatchers,
        workers_per_dispatcher=size // dispatchers,
        dispatcher_side=dispatcher_side,
        addresses=service.addresses(),
        key=key,
        timeout=timeout,
    )
    config.write(configfile)
    return service, config


# ---- a rank that trains ----


@contextlib.contextmanager
def tf_data_service(compute_config, rank):
    """Gives the address of this rank's dispatcher; starts one if the training side has them."""
    client = compute_config.compute_client(verbose=2)
    dispatcher_id = rank if compute_config.dispatchers > 1 else 0
    server = None
    if compute_config.dispatcher_side == "training" and (
        compute_config.dispatchers > 1 or rank == 0
    ):
        server = tf.data.experimental.service.DispatchServer()
        client.register_dispatcher(dispatcher_id, server.target)
    address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
    client.wait_for_dispatcher_worker_registration(dispatcher_id, compute_config.timeout)
    try:
        yield address
    finally:
        if server is not None:
            server._stop()
            server.join()


def send_to_data_service(
    dataset,
    compute_config,
    rank,
    size=None,
    processing_mode="distributed_epoch",
    reuse_dataset=False,
    round_robin=False,
):
    """The dataset, computed by the workers of a compute service."""
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "training side dispatcher not supported, use tf_data_service context manager instead"
        )
    with tf_data_service(compute_config, rank) as address:
        is_shared_in_turn = reuse_dataset and round_robin
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if is_shared_in_turn else None,
                num_consumers=size if is_shared_in_turn else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


# ---- a rank that computes ----


def compute_worker_fn(compute_config):
    """Runs a worker of the tf.data service, and a dispatcher where this rank has to, to the end."""
    hvd.init()
    per_dispatcher = compute_config.workers_per_dispatcher
    dispatcher_id = hvd.rank() // per_dispatcher
    client = compute_config.compute_client(verbose=2)
    dispatcher = None
    if compute_config.dispatcher_side == "compute" and hvd.rank() % per_dispatcher == 0:
        dispatcher = tf.data.experimental.service.DispatchServer()
        client.register_dispatcher(dispatcher_id, dispatcher.target)
    address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address.split("://")[1],
            heartbeat_interval_ms=1000,
            dispatcher_timeout_ms=compute_config.timeout * 1000,
        )
    )
    client.register_worker_for_dispatcher(dispatcher_id=dispatcher_id, worker_id=hvd.rank())
    client.wait_for_shutdown()
    worker._stop()
    worker.join()
    if dispatcher is not None:
        dispatcher._stop()
        dispatcher.join()
