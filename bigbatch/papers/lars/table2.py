"""Table 2: ‖w‖ / ‖∇w‖ differs by two orders of magnitude between the layers of AlexNet at the first iteration."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, Table, show
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, Probing
from bigbatch.recipes import lars_alexnet

# ‖w‖, ‖∇w‖ and their ratio, as printed. Rows .w and .b are swapped: 1.86 is the norm of the weights of conv1.
PAPER = {
    "conv1.b": (1.86, 0.22, 8.48),
    "conv1.w": (0.098, 0.017, 5.76),
    "conv2.b": (5.546, 0.165, 33.6),
    "conv2.w": (0.16, 0.002, 83.5),
    "conv3.b": (9.40, 0.135, 69.9),
    "conv3.w": (0.196, 0.0015, 127),
    "conv4.b": (8.15, 0.109, 74.6),
    "conv4.w": (0.196, 0.0013, 148),
    "conv5.b": (6.65, 0.09, 73.6),
    "conv5.w": (0.16, 0.0002, 69),
    "fc6.b": (30.7, 0.26, 117),
    "fc6.w": (6.4, 0.005, 1345),
    "fc7.b": (20.5, 0.30, 68),
    "fc7.w": (6.4, 0.013, 489),
    "fc8.b": (20.2, 0.22, 93),
    "fc8.w": (0.316, 0.016, 19),
}
PLACES = ("features.0", "features.4", "features.8", "features.10", "features.12", "classifier.0", "classifier.3")
LAYERS = dict(zip(("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7"), PLACES, strict=True)) | {
    "fc8": "classifier.6"
}
BATCH = {"smoke": 16, "laptop": 512, "paper": 512}


def runs(scale: Scale) -> Cases:
    """The full network at every scale; without ImageNet on smooth random images and random labels."""
    run = lars_alexnet.run().with_settings([f"global_batch={BATCH[scale]}", "micro_batch=16", "steps=1"])
    if scale != "paper":
        images = {"name": "synthetic", "sample_shape": [3, 227, 227], "classes": 1000, "samples": BATCH[scale]}
        images |= {"grid": 16, "mean": 0.5, "std": 1 / 255}
        run = type(run)(**(run.model_dump(mode="json") | {"dataset": images, "schedule": "constant"}))
    return {"AlexNet": [Probing(run, {"name": "ratio"})]}


def draw(results: Results) -> Drawing:
    if not results.records:
        return Drawing([Claim("the norms of all eight weights are as printed within 3 %", None)])
    measured = results.of("AlexNet")[0].result
    rows, norms, ratios = [], [], {}
    for name, (weight, gradient, ratio) in PAPER.items():
        layer, kind = name.split(".")
        ours = measured[f"{LAYERS[layer]}.{'weight' if kind == 'b' else 'bias'}"]  # swapped, see above
        values = [ours["weight"], ours["gradient"], ours["ratio"]]
        rows.append([name, "weights" if kind == "b" else "biases", weight, show(values[0]), gradient, show(values[1])])
        rows[-1] += [ratio, show(values[2])]
        if kind == "b":
            norms.append(ours["weight"] / weight)
            ratios[layer] = ours["ratio"]
    claims = [
        Claim(
            "the norms of all eight weights are the printed ones within 3 %", all(0.97 < one < 1.03 for one in norms)
        ),
        Claim(
            "the first convolution has the smallest ratio of all weights",
            min(ratios, key=ratios.__getitem__) == "conv1",
        ),
        Claim("ratios of weights differ by a factor of ten and more", max(ratios.values()) > 10 * min(ratios.values())),
    ]
    columns = ["paper's row", "is of the", "paper ‖w‖", "ours", "paper ‖∇w‖", "ours", "paper ratio", "ours"]
    return Drawing(claims, [Table(columns, rows)])
