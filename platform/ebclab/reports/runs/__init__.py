"""One page, or one table in a terminal, about one run or several.

Start reading at ``facts.py``, which collects what both show of a run.
"""
