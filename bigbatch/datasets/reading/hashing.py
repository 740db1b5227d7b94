"""SHA-256 of data: tensors, arrays and JSON values."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sha256(*tensors: Tensor) -> str:
    """One hash of the bytes, shapes and types of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_array(array: NDArray[np.generic]) -> str:
    """The hash of an array's bytes, shape and type."""
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def hash_json(fields: dict[str, Any]) -> str:
    """The hash of a dict of plain values, whatever their order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
