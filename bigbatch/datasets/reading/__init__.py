"""What several datasets share: finding and downloading files, decoding, augmenting, worker processes, hashes."""
