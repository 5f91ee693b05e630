"""Reports: one self-contained HTML page about one or several runs or sweeps, made from their folders.

Start reading at ``document.py``, which writes the page about sweeps; ``runs`` has the page about runs.
"""
