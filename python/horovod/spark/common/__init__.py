# SPDX-License-Identifier: Apache-2.0
"""What the estimators share: stores, backends, parameters, and the data path."""
