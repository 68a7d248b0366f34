# SPDX-License-Identifier: Apache-2.0
"""Data loaders without a framework: a base class, and reading ahead in a thread."""

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
