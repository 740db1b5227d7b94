"""The process that mirrors the metrics of one run in one tool."""
