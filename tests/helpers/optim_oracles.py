"""Float64 oracles, written from the papers' formulas in numpy and for one tensor at a time."""

from __future__ import annotations

import numpy as np


def momentum_steps(ratio, w, gradients, *, lr, momentum, weight_decay, maximize=False, nesterov=False, outside=False):
    """v ← m·v + lr·λ·(g + βw); w ← w − v, or its variants, with any rule for λ(w, g)."""
    v = np.zeros_like(w)
    for g in gradients:
        g = -g if maximize else g
        scaled = ratio(w, g) * (g + weight_decay * w)
        if outside:
            v = momentum * v + scaled
            w = w - lr * (scaled + momentum * v if nesterov else v)
        else:
            v = momentum * v + lr * scaled
            w = w - (lr * scaled + momentum * v if nesterov else v)
    return w


def lars_ratio(trust, weight_decay, eps=0.0, joint=False, clip=False):
    def ratio(w, g):
        wn, gn = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
        if wn == 0 or gn == 0:
            return 1.0
        below = np.sqrt(((g + weight_decay * w) ** 2).sum()) if joint else gn + weight_decay * wn
        found = trust * wn / (below + eps)
        return min(found, 1.0) if clip else found

    return ratio


def percent_delta_ratio(trust, weight_decay, eps):
    def ratio(w, g):
        return trust * w.size / (np.abs(g + weight_decay * w) / (np.abs(w) + eps)).sum()

    return ratio


def median_ratio(trust, weight_decay, eps=0.0, signed=False):
    def lower_median(x):
        return np.sort(x.ravel())[(x.size - 1) // 2]

    def ratio(w, g):
        wm, gm = (lower_median(w), lower_median(g)) if signed else (lower_median(abs(w)), lower_median(abs(g)))
        return trust * abs(wm) / (abs(gm + weight_decay * wm) + eps)

    return ratio


def curvature_ratio():
    return lambda w, g: abs(w / g)


def lamb_steps(
    w, gradients, *, lr, betas, eps, weight_decay, maximize=False, bias_correction=True, clip=False, excluded=False
):
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        g = -g if maximize else g
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        c1, c2 = (1 - betas[0] ** t, 1 - betas[1] ** t) if bias_correction else (1, 1)
        u = (m / c1) / (np.sqrt(v / c2) + eps) + weight_decay * w
        ratio = 1.0 if excluded else np.linalg.norm(w) / np.linalg.norm(u)
        w = w - lr * (min(ratio, 1.0) if clip else ratio) * u
    return w
