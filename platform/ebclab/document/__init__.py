"""Documents: what a product says, written once, and rendered as a page, as Markdown, as CSV and in a terminal.

Start reading at ``document.py``, the vocabulary. A product makes a ``Document`` of it;
``html`` and ``text`` render it.
"""
