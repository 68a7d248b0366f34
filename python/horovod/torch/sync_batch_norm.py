# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.torch.mpi_ops import Sum, allreduce, size

_SYNC_BN_V2 = _SYNC_BN_V3 = _SYNC_BN_V4 = True  # every PyTorch that we support


class SyncBatchNorm(_BatchNorm):
    """Like torch.nn.BatchNormNd, with the statistics of all ranks' batches while training.

    Input is expected on a GPU, as in every Horovod. Set `SyncBatchNorm.allow_cpu = True` to use it
    on CPUs too.
    """

    allow_cpu = False

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _run_bn(self, input):
        return super().forward(input)

    def _factor(self):
        """How much the new statistics count in the running ones."""
        if not self.training or not self.track_running_stats:
            return 0.0
        self.num_batches_tracked += 1
        if self.momentum is None:
            return 1.0 / float(self.num_batches_tracked)
        return self.momentum

    def _maybe_run_sync_bn(self, input):
        if size() == 1:
            return self._run_bn(input)
        return _SyncBatchNorm.apply(
            input,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            self.eps,
            self._factor(),
        )

    def forward(self, input):
        if not input.is_cuda and not self.allow_cpu:
            raise ValueError("SyncBatchNorm expected input tensor to be on GPU")
        self._check_input_dim(input)
        if not self.training and self.track_running_stats:
            return self._run_bn(input)
        return self._maybe_run_sync_bn(input)


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
