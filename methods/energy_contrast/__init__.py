"""Energy-based and contrastive self-supervised learning: losses, energies, networks and methods.

Needs torch and nothing else. Start reading at ``method.py``, then ``simclr.py``.
"""
