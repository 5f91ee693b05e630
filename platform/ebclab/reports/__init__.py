"""Pages that a person looks at: one self-contained HTML file from the logs of sweeps.

Start reading at ``page.py``: what a page holds, in order.
"""
