"""What the layer-wise optimizers share: groups, exclusion, shards, norms, and three ways to take a step.

A step is: gather the tensors that have gradients, find each layer's ratio, move. The ratio is a Python number, so
a step reads norms back from the device once per group; the arithmetic of the tensors is one of three:

- `fused`, on the CPU: torch's fused SGD kernel, tensor by tensor, because a norm and an update that follow each
  other share the cache. Chosen by default on the CPU.
- `foreach`: sweeps over all tensors. Chosen by default elsewhere.
- plain: tensor by tensor, for what the fused kernel cannot do (Nesterov, odd memory layouts).

The choice changes results by rounding alone. Of sharded parameters (DTensor, FSDP2) each rank moves its own shard,
by ratios of the whole tensor: the squares of all shards' norms are summed over the ranks in one reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from bigbatch import layers

# Below this a call costs more than its arithmetic: equally shaped tensors are then measured as the rows of a matrix ...
ROW_ELEMENTS = 1 << 13
# ... which stays in the cache, and in memory that the allocator keeps: fresh pages would cost more than is saved.
BITE_ELEMENTS = 1 << 16
# torch 2.13's fused SGD kernel for the CPU leaves half-precision weights where they are
FUSED_DTYPES = (torch.float32, torch.float64)
Group = dict[str, Any]
Tensors = list[Tensor] | tuple[Tensor, ...]
# moves parameters by gradients and momentum buffers at one learning rate
Kernel = Callable[[list[Tensor], list[Tensor], list[Tensor], float], None]
_DTYPE, _IS_CPU = attrgetter("dtype"), attrgetter("is_cpu")


class Layer:
    """One tensor in a step: of a sharded parameter, this rank's shard."""

    __slots__ = ("excluded", "gradient", "norms", "parameter", "sharded", "state", "whole")

    def __init__(self, whole: Any, gradient: Any, state: dict[str, Any], excluded: bool) -> None:
        self.whole = whole
        self.parameter: Tensor = whole
        self.gradient: Tensor = gradient
        self.state = state
        self.excluded = excluded
        self.norms: Sequence[float] | None = None  # known ahead of the update where ranks had to be asked
        self.sharded = False
        if type(whole) is not Parameter and is_sharded(whole):
            self.sharded = True
            self.parameter = whole.to_local()
            self.gradient = _local_like(gradient, whole)

    def buffer(self, name: str) -> Tensor:
        return self.state[name].to_local() if self.sharded else self.state[name]


class LayerWise(Optimizer):
    """Base of the layer-wise optimizers: exclusion per group, checked arguments, the walk over groups."""

    needs_closure = False

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, {"differentiable": False, **defaults})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; its options override the constructor's. Refused as a whole where anything is wrong."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check(group)
            rule = group["exclude"]
            group["excluded"] = layers.excluded(rule, group["params"], group.get("param_names"))
            group["exclude"] = layers.rule_name(rule)
        except ValueError:
            self.param_groups.pop()
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Fill in what a state saved by another optimizer (torch's SGD, say) does not have."""
        super().__setstate__(state)
        for tensors in self.state.values():
            for name in [name for name, value in tensors.items() if value is None]:
                del tensors[name]
        for group in self.param_groups:
            for name, value in self.defaults.items():
                if name != "exclude":
                    group.setdefault(name, value)
            if len(group.get("excluded", ())) != len(group["params"]):
                rule = self.defaults["exclude"]
                group["excluded"] = layers.excluded(rule, group["params"], group.get("param_names"))
                group["exclude"] = layers.rule_name(rule)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. The closure, if any, evaluates the model with gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gathered = [(group, self._gather(group)) for group in self.param_groups]
        if not any(group_layers for _, group_layers in gathered):
            raise ValueError(f"{type(self).__name__}.step() found no gradient on any parameter: call backward() first")
        self._move(gathered)
        return loss

    def _gather(self, group: Group) -> list[Layer]:
        found = []
        for parameter, excluded in zip(group["params"], group["excluded"], strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                raise ValueError(f"{type(self).__name__} does not take sparse gradients: use sparse=False")
            state = self.state[parameter]
            if not state:
                self._begin(group, parameter, state)
            found.append(Layer(parameter, gradient, state, excluded))
        return found

    def _check(self, group: Group) -> None:
        """Refuse arguments and parameters that no step could use."""
        number("lr", group["lr"])
        number("weight_decay", group["weight_decay"])
        check_paths(group)
        for parameter in group["params"]:
            if parameter.is_complex():
                raise ValueError(
                    f"{type(self).__name__} does not take complex parameters (shape {tuple(parameter.shape)}): "
                    "split them with torch.view_as_real"
                )

    def _begin(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        """The state of a parameter before its first step."""
        raise NotImplementedError

    def _move(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        raise NotImplementedError


class ScaledMomentum(LayerWise):
    """Momentum SGD whose learning rate is multiplied by one ratio a layer: v ← m·v + lr·λ·(g + βw); w ← w − v.

    A subclass says which norms it needs (`_measured`, `order`) and what ratio they give (`_ratio`).
    """

    order = 2

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        # dampening is never used; torch's SGD looks for it in a state that it takes over from here
        super().__init__(params, {"dampening": 0.0, **defaults})

    def _check(self, group: Group) -> None:
        super()._check(group)
        number("momentum", group["momentum"], below=1.0)
        number("trust_coefficient", group["trust_coefficient"], above=0.0)
        number("eps", group["eps"])
        if group["nesterov"] and group["momentum"] == 0:
            raise ValueError("nesterov=True needs a momentum, but momentum is 0: set momentum=0.9")
        if group["nesterov"] and group["fused"]:
            raise ValueError("fused=True cannot do nesterov=True: leave fused at None")

    def _begin(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        if group["momentum"]:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def _measured(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        """The tensors whose norms decide the ratio."""
        raise NotImplementedError

    def _ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        """λ of one layer."""
        raise NotImplementedError

    def _move(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        self._ask_ranks(gathered)
        for group, group_layers in gathered:
            path = choose_path(group, group_layers)
            if path == "foreach":
                self._move_by_sweeps(group, group_layers)
            elif path == "fused":
                self._move_fused(group, group_layers)
            else:
                for layer in group_layers:
                    self._move_plainly(group, layer)

    def _ask_ranks(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        """Norms of the sharded layers of all groups, in one reduction."""
        sharded = [(group, layer) for group, found in gathered for layer in found if layer.sharded]
        sharded = [(group, layer) for group, layer in sharded if not layer.excluded]
        if sharded:
            measured = [self._measured(group, layer.parameter, layer.gradient) for group, layer in sharded]
            found = norms_of_shards([layer.whole for _, layer in sharded], measured, self.order)
            for (_, layer), layer_norms in zip(sharded, found, strict=True):
                layer.norms = layer_norms

    def _measure(self, group: Group, layer: Layer) -> Sequence[float]:
        return [norm(tensor, self.order) for tensor in self._measured(group, layer.parameter, layer.gradient)]

    def _measure_by_sweeps(self, group: Group, group_layers: Sequence[Layer]) -> None:
        todo = [layer for layer in group_layers if layer.norms is None and not layer.excluded]
        measured = [self._measured(group, layer.parameter, layer.gradient) for layer in todo]
        columns = [norms_by_sweeps(column, self.order) for column in zip(*measured, strict=True)]
        for layer, found in zip(todo, zip(*columns, strict=True), strict=True):
            layer.norms = found

    def _lr(self, group: Group, layer: Layer) -> float:
        """What multiplies g + βw on its way into the momentum."""
        lr = _first_lr(group)
        if layer.excluded:
            return lr
        found = layer.norms or self._measure(group, layer)
        return lr * self._ratio(group, found, layer.whole.numel())

    def _move_fused(self, group: Group, group_layers: list[Layer]) -> None:
        move = sgd_kernel(group)
        by_dtype, odd = split_by_fit(group_layers, "momentum_buffer")
        for fitting in by_dtype:
            excluded = [layer for layer in fitting if layer.excluded]
            if excluded:  # one learning rate for all, so that one call moves them
                move(*_columns(group, excluded), _first_lr(group))
            one_by_one, rows = as_rows([layer for layer in fitting if not layer.excluded])
            for layer in one_by_one:
                move(*_columns(group, [layer]), self._lr(group, layer))
            for alike in rows:
                self._move_rows(group, alike, move)
        for layer in odd:
            self._move_plainly(group, layer)

    def _move_rows(self, group: Group, alike: list[Layer], move: Kernel) -> None:
        """Measured together, because a norm's call costs more than its arithmetic; moved while still in the cache."""
        parameters, gradients, buffers = _columns(group, alike)
        first_lr, elements = _first_lr(group), parameters[0].numel()
        measured = self._measure_rows(group, torch.stack(parameters), torch.stack(gradients))
        for index, norms in enumerate(measured):
            one = slice(index, index + 1)
            move(parameters[one], gradients[one], buffers[one], first_lr * self._ratio(group, norms, elements))

    def _measure_rows(self, group: Group, weights: Tensor, gradients: Tensor) -> Iterable[Sequence[float]]:
        columns = [row_norms(tensor, self.order) for tensor in self._measured(group, weights, gradients)]
        return zip(*columns, strict=True)

    def _move_plainly(self, group: Group, layer: Layer) -> None:
        momentum = group["momentum"]
        step = direction(group, layer).mul_(self._lr(group, layer))
        if momentum:
            buffer = layer.buffer("momentum_buffer").mul_(momentum).add_(step)
            step = step.add_(buffer, alpha=momentum) if group["nesterov"] else buffer
        layer.parameter.add_(step, alpha=-_last_lr(group))

    def _move_by_sweeps(self, group: Group, group_layers: list[Layer]) -> None:
        momentum = float(group["momentum"])
        self._measure_by_sweeps(group, group_layers)
        for alike in alike_on_device(group_layers):
            parameters = [layer.parameter for layer in alike]
            lrs = [self._lr(group, layer) for layer in alike]
            steps = directions(group, alike)
            torch._foreach_mul_(steps, lrs)
            if momentum:
                buffers = [layer.buffer("momentum_buffer") for layer in alike]
                torch._foreach_mul_(buffers, momentum)
                torch._foreach_add_(buffers, steps)
                if group["nesterov"]:
                    torch._foreach_add_(steps, buffers, alpha=momentum)
                else:
                    steps = buffers
            torch._foreach_add_(parameters, steps, alpha=-_last_lr(group))


def _first_lr(group: Group) -> float:
    """What of the group's learning rate goes into the momentum ..."""
    return 1.0 if group.get("momentum_form") == "outside" else float(group["lr"])


def _last_lr(group: Group) -> float:
    """... and what multiplies the momentum on its way to the weights."""
    return float(group["lr"]) if group.get("momentum_form") == "outside" else 1.0


def _columns(group: Group, alike: list[Layer]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Parameters, gradients and, where there is momentum, its buffers."""
    buffers = [layer.buffer("momentum_buffer") for layer in alike] if group["momentum"] else []
    return [layer.parameter for layer in alike], [layer.gradient for layer in alike], buffers


def sgd_kernel(group: Group) -> Kernel:
    """torch's fused SGD kernel with a group's options; its factor 1 − dampening carries a lr into the momentum."""
    momentum, last_lr = float(group["momentum"]), _last_lr(group)
    weight_decay, maximize = float(group["weight_decay"]), group["maximize"]

    def move(parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], lr: float) -> None:
        torch._fused_sgd_(
            parameters,
            gradients,
            buffers,
            weight_decay=weight_decay,
            momentum=momentum,
            # without momentum the kernel knows no dampening
            lr=last_lr if momentum else last_lr * lr,
            dampening=1.0 - lr if momentum else 0.0,
            nesterov=False,
            maximize=maximize,
            is_first_step=False,
        )

    return move


def direction(group: Group, layer: Layer) -> Tensor:
    """g + βw as a new tensor: the gradient itself is never written to."""
    gradient = layer.gradient.neg() if group["maximize"] else layer.gradient.clone()
    return gradient.add_(layer.parameter, alpha=group["weight_decay"]) if group["weight_decay"] else gradient


def directions(group: Group, alike: list[Layer]) -> list[Tensor]:
    """g + βw of many layers as new tensors."""
    sign = -1.0 if group["maximize"] else 1.0
    found = list(torch._foreach_mul([layer.gradient for layer in alike], sign))
    if group["weight_decay"]:
        torch._foreach_add_(found, [layer.parameter for layer in alike], alpha=group["weight_decay"])
    return found


# --- norms ------------------------------------------------------------------------------------------------------


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Squares of half-precision numbers overflow at 256: sum them in float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def norm(tensor: Tensor, order: int = 2) -> float:
    dtype = tensor.dtype
    if dtype is torch.float16 or dtype is torch.bfloat16:
        return torch.linalg.vector_norm(tensor, order, dtype=torch.float32).item()
    return torch.linalg.vector_norm(tensor, order).item()


def row_norms(rows: Tensor, order: int = 2) -> list[float]:
    """The norm of each tensor in a stack."""
    return torch.linalg.vector_norm(rows.flatten(1), order, dim=1, dtype=accumulation_dtype(rows.dtype)).tolist()


def norms_by_sweeps(tensors: Sequence[Tensor], order: int = 2) -> list[float]:
    """The norm of each tensor, read back from the device once for each dtype."""
    found = [0.0] * len(tensors)
    alike: dict[Any, list[int]] = {}
    for index, tensor in enumerate(tensors):
        alike.setdefault((tensor.dtype, tensor.device), []).append(index)
    for (dtype, _), indices in alike.items():
        swept = torch._foreach_norm([tensors[index] for index in indices], order, dtype=accumulation_dtype(dtype))
        for index, value in zip(indices, torch.stack(swept).tolist(), strict=True):
            found[index] = value
    return found


# --- shards -----------------------------------------------------------------------------------------------------


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor; asked so that torch.distributed need not be imported to know."""
    return type(tensor) is not Parameter and type(tensor) is not Tensor and hasattr(tensor, "to_local")


def _local_like(gradient: Any, parameter: Any) -> Tensor:
    """The part of the gradient that lies over this rank's part of the parameter."""
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return gradient.to_local()


def norms_of_shards(wholes: Sequence[Any], measured: Sequence[Sequence[Tensor]], order: int = 2) -> list[list[float]]:
    """Norms of whole tensors from this rank's shards: `measured` holds the shards, one row a parameter.

    One reduction for all tensors that lie on the same mesh in the same way. Powers are summed in float64, where the
    square of any float32 norm fits.
    """
    import torch.distributed as dist

    found: list[list[float]] = [[] for _ in wholes]
    alike: dict[Any, list[int]] = {}
    for index, whole in enumerate(wholes):
        split = tuple(dim for dim, placement in enumerate(whole.placements) if not placement.is_replicate())
        alike.setdefault((whole.device_mesh, split), []).append(index)
    for (mesh, split), indices in alike.items():
        shards = [shard for index in indices for shard in measured[index]]
        powers = torch.tensor(
            [value if order == 1 else value * value for value in norms_by_sweeps(shards, order)], dtype=torch.float64
        )
        powers = powers.to(mesh.device_type)
        for dim in split:
            dist.all_reduce(powers, group=mesh.get_group(dim))
        values = iter((powers ** (1.0 / order)).tolist())
        for index in indices:
            found[index] = [next(values) for _ in measured[index]]
    return found


# --- paths and arguments ----------------------------------------------------------------------------------------


def choose_path(group: Group, group_layers: Sequence[Layer]) -> str:
    """'fused', 'foreach' or 'plain', as asked for or as fits the device."""
    if group["foreach"]:
        return "foreach"
    on_cpu = all(map(_IS_CPU, [layer.parameter for layer in group_layers]))
    if on_cpu and group["fused"] is not False and not group.get("nesterov"):
        return "fused"
    return "plain" if on_cpu or group["foreach"] is False else "foreach"


def fit_kernel(group_layers: Sequence[Layer], *buffers: str) -> bool:
    """Whether one call of a fused kernel can move all these layers: one dtype and, since the kernels walk memory side
    by side, no gaps."""
    parameters = [layer.parameter for layer in group_layers]
    gradients = [layer.gradient for layer in group_layers]
    held = [layer.state[name] for name in buffers for layer in group_layers if name in layer.state]
    dtypes = set(map(_DTYPE, parameters)).union(map(_DTYPE, gradients))
    contiguous = all(map(Tensor.is_contiguous, [*parameters, *gradients, *held]))
    return contiguous and len(dtypes) == 1 and dtypes.issubset(FUSED_DTYPES)


def split_by_fit(group_layers: list[Layer], *buffers: str) -> tuple[list[list[Layer]], list[Layer]]:
    """Layers that fused kernels can move, by dtype, and those that they cannot."""
    # asked of all at once first: layer by layer the question would take as long as the norms do
    if fit_kernel(group_layers, *buffers):
        return [group_layers], []
    by_dtype: dict[torch.dtype, list[Layer]] = {}
    odd: list[Layer] = []
    for layer in group_layers:
        fits = fit_kernel([layer], *buffers)
        (by_dtype.setdefault(layer.parameter.dtype, []) if fits else odd).append(layer)
    return list(by_dtype.values()), odd


def as_rows(group_layers: Iterable[Layer]) -> tuple[list[Layer], list[list[Layer]]]:
    """Layers to take one by one, and bites of small layers of one shape that make one matrix."""
    one_by_one: list[Layer] = []
    by_shape: dict[torch.Size, list[Layer]] = {}
    for layer in group_layers:
        if layer.sharded:
            one_by_one.append(layer)
        else:
            by_shape.setdefault(layer.parameter.shape, []).append(layer)
    rows = []
    for shape, alike in by_shape.items():
        if len(alike) > 1 and 0 < shape.numel() <= ROW_ELEMENTS:
            count = max(2, BITE_ELEMENTS // shape.numel())
            rows += [alike[start : start + count] for start in range(0, len(alike), count)]
        else:
            one_by_one += alike
    return one_by_one, rows


def alike_on_device(group_layers: Iterable[Layer]) -> list[list[Layer]]:
    """Layers by device and dtype, which a sweep must not mix."""
    alike: dict[Any, list[Layer]] = {}
    for layer in group_layers:
        alike.setdefault((layer.parameter.device, layer.parameter.dtype), []).append(layer)
    return list(alike.values())


def check_paths(group: Group) -> None:
    """foreach and fused exclude each other; the fused kernels are used on the CPU alone."""
    if group["foreach"] and group["fused"]:
        raise ValueError("foreach=True and fused=True exclude each other: set one of them")
    if group["fused"]:
        for parameter in group["params"]:
            if not parameter.is_cpu or parameter.dtype not in FUSED_DTYPES:
                raise ValueError(
                    f"fused=True needs float32 or float64 parameters on the CPU, but one is {parameter.dtype} on "
                    f"{parameter.device}: leave fused at None"
                )


def number(name: str, value: Any, *, above: float | None = None, below: float = math.inf) -> None:
    """Refuse what is not a finite number from 0 (or above a bound) up to below a bound."""
    try:
        fits = math.isfinite(value) and (value >= 0 if above is None else value > above) and value < below
    except (TypeError, RuntimeError):
        fits = False
    if not fits:
        least = "at least 0" if above is None else f"above {above:g}"
        most = "" if below == math.inf else f" and below {below:g}"
        raise ValueError(f"{name} must be a finite number {least}{most}, but is {value!r}")


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}")
