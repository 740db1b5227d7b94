"""The web page where a person checks a filter before anything is dropped: `bigbatch view kept.npz`.

sources.py opens what is given, document.py is the state of one filter on the page (overrides.py its history,
event_log.py its file), routes.py answers requests that guard.py let through, server.py runs it; static/ is the page.
"""
