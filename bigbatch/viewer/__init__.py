"""The web page where a person looks over a filter before anything is thrown away: `bigbatch view kept.npz`.

sources.py opens what is given, document.py is the state of one page (history.py keeps it on disk), app.py answers
requests that guard.py let through, server.py runs it; the page itself is in static/.
"""
