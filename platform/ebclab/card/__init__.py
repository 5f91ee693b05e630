"""The evaluation card: the standard metrics of a frozen encoder, each with its protocol and confidence interval.

``evaluate`` opens encoders (``subject``) and images by a ``request``, and has ``measure`` run the ``groups``, which are
given a ``measuring``; what they find is kept by ``card`` and features by its ``FeatureStore``. Cards are
compared ``side_by_side`` and written as a ``document``.
"""
