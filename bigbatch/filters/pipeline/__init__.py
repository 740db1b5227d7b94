"""The stages of a filter by a network's features, and code that filters share.

source -> features -> pca -> embedding (a map; nearest neighbours by neighbours.py) -> threshold (DBSCAN's noise, class
by class, by dbscan.py) -> decision -> result (kept.npz with its manifest); `rebuild` recomputes a result from its
manifest. stages.py runs them with a cache in between. For other filters, scoring.py trains small networks that score
samples, and budget.py drops a fraction, or as many samples as another filter. ranks.py divides the work over ranks.
"""
