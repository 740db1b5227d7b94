"""What a paper says of the batch to prefer: shown beside what was measured, never mixed into it."""

from __future__ import annotations

from typing import Any


def preferred_batch() -> dict[str, Any]:
    """Gahlot et al. 2020, section IV-A, Figs. 4 and 5. Its text gives the range and the shape; the points of the
    curves are in pictures only, so that no numbers are taken from them."""
    return {
        "source": "Gahlot, Yin, Shankar 2020, Figs. 4 and 5",
        "setting": "ResNet-18 to ResNet-152 on CIFAR-10, SGD, 50 epochs",
        "batches": [16, 20480],
        "says": (
            "at each rate the accuracy rises with the batch up to a preferred one and falls beyond it, slowly for "
            "small networks and at once for large ones; the peaks lie together at low rates, apart at high ones"
        ),
        "mixed_in": False,
    }
