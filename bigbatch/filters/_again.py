"""A saved result of the network filter, decided again with other settings on the same map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.filters._decide import eps_star
from bigbatch.filters._manifest import Saved, refuse_other_format, with_overrides
from bigbatch.filters._size import refuse_empty_classes
from bigbatch.filters.network import Config, decided, refuse_small_classes

SETTINGS = ("mode", "min_samples", "drop", "per_class", "eps")


def decide_again(saved: Saved, overrides: Iterable[dict[str, Any]] | None = None, **settings: Any) -> Saved:
    """The result with another mode, min_samples, drop, per_class or eps: `save` writes it, `rebuild` makes it anew.

    What is not given stays. eps, a number or one for each class by name, counts for mode=manual alone.
    `overrides` replace the history; without, it stays, and later words still win over the new decision.
    """
    config = _config(saved, settings)
    labels, points = saved.arrays["label"], saved.arrays.get("points", saved.arrays["map"])
    classes = saved.manifest["dataset"]["classes"]
    refuse_small_classes(saved.labels[torch.from_numpy(~np.isnan(points[:, 0]))], classes, config.min_samples)
    same = config.min_samples == saved.manifest["filter"]["min_samples"]
    score = saved.score.numpy() if same else eps_star(points, labels, config.min_samples)
    decision = decided(points, score, labels, classes, config)
    manifest = saved.manifest | {
        "filter": config.model_dump(mode="json"),
        "info": saved.manifest["info"] | decision.info,
    }
    entries = saved.manifest["overrides"] if overrides is None else overrides
    again = replace(saved, score=torch.from_numpy(score), arrays=saved.arrays | decision.arrays, manifest=manifest)
    result = with_overrides(again, decision.mask, entries)
    refuse_empty_classes(result.mask, result.labels, classes, "the overrides", "take some of them back")
    return result


def _config(saved: Saved, settings: dict[str, Any]) -> Config:
    options = saved.manifest.get("filter", {})
    if "mode" not in options or "map" not in saved.arrays:
        maker = f"is by '{options['name']}'" if options else "has no manifest"
        raise Problem(
            f"filter file {saved.path} {maker}, so there is no radius to choose: give a result of the filter 'network'"
        )
    refuse_other_format(saved.path, saved.manifest)
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise Problem(f"'{unknown[0]}' changes the map, which is made already: change one of {', '.join(SETTINGS)}")
    options = options | settings
    config = parts.configure("filters", options | ({} if options["mode"] == "manual" else {"eps": None}))
    assert isinstance(config, Config)
    return config
