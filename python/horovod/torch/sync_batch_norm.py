# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks, on any device, also in torch.jit.script.

TorchScript can't call into an autograd function, so scripted modules reach the same code as the
operator `horovod::sync_batch_norm`.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from horovod.torch.mpi_ops import Sum, allreduce, size
from horovod.torch.private import BatchNormBase

_SYNC_BN_V2 = _SYNC_BN_V3 = _SYNC_BN_V4 = True  # every PyTorch that we support


class SyncBatchNorm(BatchNormBase):
    """Like torch.nn.BatchNormNd, with the statistics of all ranks' batches while training.

    Batches may differ in size between ranks; each sample counts the same. The gradients of weight
    and bias are those of the rank's own batch, for DistributedOptimizer to reduce.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _run_bn(self, input: Tensor) -> Tensor:
        return functional.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.running_mean is None and self.running_var is None,
            0.0,
            self.eps,
        )

    def _factor(self) -> float:
        """How much the new statistics count in the running ones."""
        if not self.training or not self.track_running_stats:
            return 0.0
        factor = 0.0 if self.momentum is None else self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        return factor

    def _maybe_run_sync_bn(self, input: Tensor) -> Tensor:
        factor = self._factor()
        if torch.jit.is_scripting():
            return torch.ops.horovod.sync_batch_norm(
                input,
                self.weight,
                self.bias,
                self.running_mean,
                self.running_var,
                self.eps,
                factor,
            )
        else:  # noqa: RET505 - the script compiler leaves out what is in an else only
            return _sync_batch_norm(
                input,
                self.weight,
                self.bias,
                self.running_mean,
                self.running_var,
                self.eps,
                factor,
            )

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch; while training, with the statistics of all ranks."""
        self._check_input_dim(input)
        if not self.training and self.track_running_stats:
            return self._run_bn(input)
        return self._maybe_run_sync_bn(input)


def _sync_batch_norm(input, weight, bias, running_mean, running_var, eps, factor):
    """Normalise by the batches of all ranks; `factor` 0 leaves the running statistics alone."""
    if size() == 1:
        if factor == 0.0:
            running_mean = running_var = None
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, True, factor, eps
        )
    return _SyncBatchNorm.apply(input, weight, bias, running_mean, running_var, eps, factor)


_operators = torch.library.Library("horovod", "FRAGMENT")
_operators.define(
    "sync_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, "
    "Tensor(b!)? running_var, float eps, float factor) -> Tensor"
)
_operators.impl("sync_batch_norm", _sync_batch_norm, "CompositeImplicitAutograd")


def _per_channel(tensor, like):
    """A vector over the channels, shaped to multiply a batch."""
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


class _SyncBatchNorm(torch.autograd.Function):
    """Statistics are summed over the ranks in float32 or better: count, sum, sum of squares.

    The second pass (squares of what is left after the mean) keeps precision where the mean is
    large against the deviation; it costs one more small allreduce.
    """

    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, eps, factor):
        dims = [0, *range(2, input.dim())]
        wide = input.double() if input.dtype == torch.float64 else input.float()
        count = wide.new_tensor([input.numel() // max(input.size(1), 1)])
        sums = allreduce(torch.cat([wide.sum(dims), count]), op=Sum, name="sync_batch_norm.mean")
        total = sums[-1]
        mean = sums[:-1] / total
        centred = wide - _per_channel(mean, input)
        squares = allreduce(centred.square().sum(dims), op=Sum, name="sync_batch_norm.invstd")
        var = squares / total
        invstd = torch.rsqrt(var + eps)
        if running_mean is not None and factor > 0.0:
            unbiased = squares / (total - 1).clamp(min=1)
            running_mean.lerp_(mean.to(running_mean.dtype), factor)
            running_var.lerp_(unbiased.to(running_var.dtype), factor)
        normal = centred * _per_channel(invstd, input)
        ctx.save_for_backward(normal, weight, invstd, total)
        output = normal
        if weight is not None:
            output = output * _per_channel(weight, input) + _per_channel(bias, input)
        return output.to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        normal, weight, invstd, total = ctx.saved_tensors
        dims = [0, *range(2, grad_output.dim())]
        wide = grad_output.to(normal.dtype)
        sum_dy = wide.sum(dims)
        sum_dy_xhat = (wide * normal).sum(dims)
        grad_input = grad_weight = grad_bias = None
        if weight is not None:
            grad_weight = sum_dy_xhat.to(weight.dtype)
            grad_bias = sum_dy.to(weight.dtype)
        if ctx.needs_input_grad[0]:
            sums = allreduce(
                torch.cat([sum_dy, sum_dy_xhat]), op=Sum, name="sync_batch_norm.sum_dy"
            )
            mean_dy, mean_dy_xhat = (sums / total).chunk(2)
            scale = invstd if weight is None else invstd * weight
            grad_input = (
                wide - _per_channel(mean_dy, wide) - normal * _per_channel(mean_dy_xhat, wide)
            ) * _per_channel(scale, wide)
            grad_input = grad_input.to(grad_output.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None, None
