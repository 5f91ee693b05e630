"""Reports: one self-contained HTML page about one or several sweeps, made from their logs.

Start reading at ``page.py``, which renders the page.
"""
