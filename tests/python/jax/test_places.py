# SPDX-License-Identifier: Apache-2.0
"""JAX between two machines: the same training, without shared memory."""

from namespaces import namespaces  # noqa: F401 - a fixture


def test_between_namespaces(namespaces, request):  # noqa: F811
    namespaces.run_module(request.path.with_name("ranks_training.py"), "test_optimizer")
