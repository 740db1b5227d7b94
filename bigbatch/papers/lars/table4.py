"""Table 4: ResNet-50 with LARS from 256 to 32K, with minimal and with extended augmentation."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.lars.settings import SEEDS, lars
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

# top-1 accuracy in %, by augmentation and batch
PAPER = {
    ("minimal", 256): 73.8,
    ("minimal", 1024): 73.3,
    ("minimal", 8192): 73.5,
    ("minimal", 16384): 72.9,
    ("minimal", 32768): 72.5,
    ("extended", 256): 75.8,
    ("extended", 1024): 75.4,
    ("extended", 8192): 75.2,
    ("extended", 16384): 74.4,
    ("extended", 32768): 72.5,
}


def runs(scale: Scale) -> Cases:
    """Reduced scales have one augmentation, that of their dataset."""
    cases: Cases = {}
    for augmentation, batch in PAPER:
        run = lars(scale, "ResNet-50", batch)
        if scale == "paper" and augmentation == "extended":
            run = run.with_settings(["dataset.augment=random_resized_crop"])
        if scale == "paper" or augmentation == "minimal":
            cases[augmentation, batch] = repeat(run, SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    tolerance = 1 if results.scale == "paper" else 5
    claims = [
        Claim.check(
            f"up to 8K ResNet-50 loses at most {tolerance} points",
            lambda: results.mean(("minimal", 8192)) > results.mean(("minimal", 256)) - tolerance / 100,
        ),
        Claim.better(results, "32K is less accurate than 256", ("minimal", 256), ("minimal", 32768)),
    ]
    series = {name: [case for case in PAPER if case[0] == name] for name in ("minimal", "extended")}
    chart = chart_against(results, "ResNet-50 with LARS: accuracy against the batch", series)
    return Drawing(claims, [compare(results, ["augmentation", "batch"], PAPER)], {"accuracy": chart})
