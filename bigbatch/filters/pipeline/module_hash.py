"""A hash of what a network computes: the same in every process and on every rank, another after any change.

It covers weights and buffers, the structure of layers, each layer's plain attributes (a scale, a number of groups), and
the code of each class that is not torch's, without comments and line breaks. It does not cover functions that such
code calls, nor attributes that are neither plain values nor tensors.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_NO_SETTING = {*vars(nn.Module()), "training"}  # what every module has


def hash_module(module: nn.Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    code = {kind: _class_code(kind) for kind in {type(layer) for layer in module.modules()}}
    for name, layer in module.named_modules():
        plain = {key: value for key, value in _own_attributes(layer) if _is_plain(value)}
        digest.update(repr([name, *code[type(layer)], sorted(plain.items())]).encode())
    for name, tensor in sorted(_iterate_tensors(module), key=lambda named: named[0]):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name}{values.dtype}{tuple(values.shape)}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _own_attributes(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in vars(layer).items() if key not in _NO_SETTING)


def _iterate_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the state dict, then buffers that are not saved, and tensors that are plain attributes."""
    saved = module.state_dict()
    yield from ((name, tensor) for name, tensor in saved.items() if isinstance(tensor, Tensor))
    yield from ((name, buffer) for name, buffer in module.named_buffers() if name not in saved)
    for name, layer in module.named_modules():
        for key, value in _own_attributes(layer):
            if isinstance(value, Tensor) and value.layout == torch.strided:
                yield f"{name}.{key}", value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, bool | int | float | complex | str | torch.dtype)


def _class_code(layer_class: type) -> tuple[str, ...]:
    """Return name and code of a class and of its base classes up to torch's."""
    own = [part for part in layer_class.__mro__ if part is not object and part.__module__.partition(".")[0] != "torch"]
    return (layer_class.__module__, layer_class.__qualname__, *(_dump_syntax_tree(part) for part in own))


def _dump_syntax_tree(part: type) -> str:
    try:
        return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(part))))
    except (OSError, TypeError, SyntaxError):  # written in C, or in an interactive session
        return part.__qualname__
