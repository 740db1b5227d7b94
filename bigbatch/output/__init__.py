"""One style of figures, pages, progress bars and numbers."""
