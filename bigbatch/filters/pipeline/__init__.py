"""The stages of a filter that looks at a network's features, and what filters share.

source -> features -> pca -> embedding (a map; nearest neighbours by neighbours.py) -> threshold (DBSCAN's noise, class
by class, by dbscan.py) -> decision -> result (kept.npz with its manifest); `rebuild` makes a result again from its
manifest. stages.py runs them with a cache in between. Of other filters: scoring.py trains small networks that score
samples, budget.py drops a fraction, or as many samples as another filter did. ranks.py divides the work over ranks.
"""
