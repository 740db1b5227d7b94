"""What a paper says of the batch to prefer: shown beside what was measured, never mixed into it."""

from __future__ import annotations

from typing import Any


def preferred_batch() -> dict[str, Any]:
    """Gahlot et al. 2020, section IV. Figs. 4 and 5 (preferred batch against lr) are pictures without numbers in the
    text, which gives their range and shape; section IV-B gives accuracies at a few batches."""
    return {
        "source": "Gahlot, Yin, Shankar 2020, Figs. 4 and 5",
        "setting": "ResNet-18 to ResNet-152 on CIFAR-10, SGD, 50 epochs",
        "batches": [16, 20480],
        "says": (
            "at each learning rate the accuracy rises with the batch up to a preferred one and falls beyond it, "
            "slowly for small networks and at once for large ones; the peaks lie together at low learning rates, "
            "apart at high ones"
        ),
        "series": [
            {"name": "network-filtered", "batches": [64, 128, 256, 6272], "accuracies": [81.8, 82.7, 83.2, 77.5]},
            {"name": "full", "batches": [256, 6272], "accuracies": [82.6, 75.2]},
            {"name": "randomly filtered", "batches": [64, 128, 256], "accuracies": [79.2, 80.5, 80.9]},
        ],
        "caption": (
            "ResNet-18 on CIFAR-10, the accuracies that section IV-B states. Weight decay differs between them (0.005, "
            "0.012 and, at 6272 on 8 GPUs, 0.01), so the lines only guide the eye. A prior: nothing of it is in the "
            "answer."
        ),
        "mixed_in": False,
    }
