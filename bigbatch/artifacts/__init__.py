"""What a run leaves behind: its folder, metrics, checkpoints and provenance, written atomically."""
