# SPDX-License-Identifier: Apache-2.0
"""What the bridges to PyTorch and JAX have in common: no graphs, no sessions, Keras 3 only."""


def key(variable):
    return id(variable)


def is_variable(variable):
    return hasattr(variable, "assign") and hasattr(variable, "value")


def reduce_but_local(grads, variables, local_keys, reduce, process_set, is_scaled):
    """Reduces all gradients but those of local variables, which are divided by the set's size."""
    results = list(grads)
    shared = [i for i, variable in enumerate(variables) if key(variable) not in local_keys]
    reduced = reduce([grads[i] for i in shared], [variables[i] for i in shared])
    if is_scaled and local_keys:
        ranks = process_set.size()
        results = [grad if grad is None else grad / ranks for grad in results]
    for index, result in zip(shared, reduced, strict=True):
        results[index] = result
    return results


def not_reduced(grads, variables, is_idempotent):
    """Indices of the gradients that are still to be reduced: nothing else reduces them here."""
    return list(range(len(grads)))


def mark(grads, variables):
    return grads


def make_aggregation(settings):
    if settings.backward_passes_per_step > 1:
        raise ValueError(
            "backward_passes_per_step > 1 needs Keras on TensorFlow; use "
            "gradient_accumulation_steps of the Keras optimizer."
        )


def compute_gradients(loss, var_list, tape, grad_loss=None):
    raise NotImplementedError(
        "Only Keras on TensorFlow computes gradients in the optimizer; give them to apply()."
    )


def members_of(base):
    return []


def evaluate(backend, op_or_result):
    return op_or_result


def before_variables(model):
    """Nothing: the variables hold their values at all times."""


def broadcast_global_variables(backend, root_rank):
    raise RuntimeError(
        "hvd.broadcast_global_variables() is for graphs of TensorFlow 1. Please use "
        "`hvd.callbacks.BroadcastGlobalVariablesCallback` instead."
    )


def assign(backend, variable, number):
    """False if it is no variable."""
    if not is_variable(variable):
        return False
    variable.assign(number)
    return True


def copy(target, source):
    target.assign(source.value)
