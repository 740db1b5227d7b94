"""The stages of a filter by a network's features, and code that filters share.

source -> features -> embedding (principal components, then a map) -> decision (DBSCAN's noise, class by class, by
dbscan.py) -> results (kept.npz with its manifest); `rebuild` recomputes a result from its manifest. cache.py keeps the
output of each stage. For other filters, scoring.py trains small networks that score samples, and drops a fraction, or
as many samples as another filter. ranks.py divides the work over ranks.
"""
