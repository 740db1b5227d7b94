"""How ranks and workers are started, watched and stopped."""
