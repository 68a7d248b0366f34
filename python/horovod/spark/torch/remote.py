# SPDX-License-Identifier: Apache-2.0
"""What each rank of a TorchEstimator does. Start reading at train()."""

import io


def tensors_of(batch, names, shapes, device):
    """The columns of a batch as tensors in these shapes, 64-bit floats as 32-bit ones."""
    import torch

    found = []
    for i, name in enumerate(names):
        tensor = torch.from_numpy(batch[name]).to(device)
        if tensor.dtype == torch.float64:
            tensor = tensor.float()
        if shapes is not None and shapes[i] is not None:
            tensor = tensor.reshape(tuple(shapes[i]))
        found.append(tensor)
    return found


def loss_of(plan, outputs, labels, weight):
    """The weighted sum of the losses of all labels."""
    losses = plan["loss"] * len(labels) if len(plan["loss"]) == 1 else plan["loss"]
    factors = plan["loss_weights"] or [1.0] * len(labels)
    total = 0
    for fn, output, label, factor in zip(losses, outputs, labels, factors, strict=True):
        if (
            output.dim() == 2
            and output.shape[1] == 1
            and label.dim() == 1
            and label.is_floating_point()
        ):
            label = label.reshape(-1, 1)
        value = fn(output, label)
        if weight is not None:
            value = (value.reshape(len(weight), -1).mean(1) * weight).sum() / weight.sum()
        total = total + factor * value
    return total


def as_list(value):
    """The value, or a list of it if it is not one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _forward(plan, model, batch, device):
    inputs = tensors_of(batch, plan["features"], plan["input_shapes"], device)
    labels = tensors_of(batch, plan["labels"], plan["label_shapes"], device)
    weight = tensors_of(batch, [plan["weight"]], None, device)[0] if plan["weight"] else None
    inputs = [x.float() for x in inputs]
    if plan["minibatch_fn"] is not None and model.training:
        value = plan["minibatch_fn"](
            model, inputs, labels, lambda outputs, y: loss_of(plan, as_list(outputs), y, weight)
        )
        return value, None, labels
    outputs = as_list(model(*inputs))
    return loss_of(plan, outputs, labels, weight), outputs, labels


def _pass(plan, model, batches, optimizer, device):
    """One epoch, or a validation if there is no optimizer: mean loss and metrics of this rank."""
    import torch

    sums: dict[str, float] = {}
    for batch in batches:
        with torch.set_grad_enabled(optimizer is not None):
            loss, outputs, labels = _forward(plan, model, batch, device)
        if optimizer is not None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        sums["loss"] = sums.get("loss", 0.0) + float(loss.detach())
        for fn in plan["metrics"] if outputs is not None else []:
            name = getattr(fn, "__name__", type(fn).__name__)
            value = fn(outputs[0].detach(), labels[0])
            sums[name] = sums.get(name, 0.0) + float(value)
    return {name: value / len(batches) for name, value in sums.items()}


def _scale_rates(optimizer, factor):
    for group in optimizer.param_groups:
        group["lr"] *= factor


def _checkpoint(model, optimizer, size):
    """With the learning rates of one rank."""
    import torch

    _scale_rates(optimizer, 1 / size)
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    _scale_rates(optimizer, size)
    return buffer.getvalue()


def pick_device(plan):
    """Where this rank trains; all ranks must use the same kind of device."""
    import torch

    import horovod.torch as hvd
    from horovod.spark.task import gpu_index

    has_gpu = plan["use_gpu"] and torch.cuda.is_available()
    if len(set(hvd.allgather_object(bool(has_gpu)))) > 1:
        raise RuntimeError("some ranks have a GPU and others have none; set use_gpu to False")
    if not has_gpu:
        return torch.device("cpu")
    number = gpu_index(hvd.local_rank())
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _prepare(plan, pickled, device):
    """(model, optimizer, distributed optimizer), the same on all ranks."""
    import cloudpickle
    import torch

    import horovod.torch as hvd

    if plan["random_seed"] is not None:
        torch.manual_seed(plan["random_seed"])
    model, optimizer = cloudpickle.loads(pickled)
    model.to(device)
    if plan["checkpoint"] is not None:
        state = torch.load(io.BytesIO(plan["checkpoint"]), weights_only=True, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    _scale_rates(optimizer, hvd.size())
    distributed = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=plan["compression"] or hvd.Compression.none,
        backward_passes_per_step=plan["backward_passes"],
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(distributed, root_rank=0)
    return model, distributed


def train(plan, pickled):
    """The history and, on rank 0, the last checkpoint."""
    import horovod.torch as hvd
    from horovod.spark.common.dataset import plan_batches

    hvd.init()
    device = pick_device(plan)
    model, optimizer = _prepare(plan, pickled, device)
    batches = plan_batches(plan, "train", hvd.rank(), hvd.size())
    checks = plan_batches(plan, "val", hvd.rank(), hvd.size()) if plan["val_path"] else None
    history, state = [], b""
    for epoch in range(plan["epochs"]):
        model.train()
        found = {"epoch": epoch, "train": _average(_pass(plan, model, batches, optimizer, device))}
        if checks is not None:
            model.eval()
            found["validation"] = _average(_pass(plan, model, checks, None, device))
        history.append(found)
        if hvd.rank() == 0:
            state = _checkpoint(model, optimizer, hvd.size())
            path = plan["store"].get_checkpoint_path(plan["run_id"])
            if path is not None:
                plan["store"].write(path, state)
            if plan["verbose"]:
                print(found, flush=True)
    hvd.shutdown()
    return history, state


def _average(values):
    """Over all ranks."""
    import torch

    import horovod.torch as hvd

    names = sorted(values)
    mean = hvd.allreduce(torch.tensor([values[n] for n in names]), name="horovod.spark.metrics")
    return dict(zip(names, mean.tolist(), strict=True))
