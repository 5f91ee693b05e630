"""The evaluation card: the standard metrics of a frozen encoder, each with its protocol and confidence interval.

``evaluate`` opens encoders (``subject``) and images by a ``request``, and has ``measure`` run the ``groups``, which are
given a ``measuring``; what they find is kept by ``card`` and features by its ``FeatureStore``. Cards are
compared ``side_by_side`` and written as a ``document``.

To add a measure, read ``groups/geometry.py``: what a group needs and looks at is declared in its ``GROUP``, and what it
finds are ``Number``s, each with its protocol. ``groups/__init__.py`` lists the groups in the order of the page.
"""
