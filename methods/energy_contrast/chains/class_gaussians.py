"""Starts of chains: samples of a Gaussian with the mean and covariance of a class of images.

Shapes: N images, R samples, C channels, H x W pixels.
"""

from __future__ import annotations

from torch import Tensor


def class_gaussian_samples(images: Tensor, labels: Tensor, picked: Tensor, noise: Tensor) -> Tensor:
    """Return samples of Gaussians that have the means and covariances of classes of images.

    ``x_r = mu + n^-1/2 sum_i epsilon_ri (x_i - mu)`` over the n images i of the class of image ``picked[r]``, whose
    mean is mu. With standard normal epsilon its covariance is ``1/n sum_i (x_i - mu)(x_i - mu)^T``, which is never
    formed.

    Args:
        images: (N, C, H, W).
        labels: (N,) int64.
        picked: (R,) int64 rows of ``images`` whose classes are sampled; uniform rows sample classes by frequency.
        noise: (R, N) standard normal numbers, epsilon.

    Returns:
        (R, C, H, W) samples; an image itself where it is the only one of its class.

    >>> import torch
    >>> three = torch.tensor([1.0, 3.0, 9.0]).view(3, 1, 1, 1)
    >>> picked, noise = torch.tensor([0, 2]), torch.ones(2, 3) * torch.tensor([1.0, -1.0, 5.0])
    >>> class_gaussian_samples(three, torch.tensor([0, 0, 1]), picked, noise).flatten()
    tensor([0.5858, 9.0000])

    Source: JEM++ (arXiv:2109.09032), informative initialisation: the mixture of one Gaussian for each class.
    """
    same = (labels[picked][:, None] == labels).to(images.dtype)  # (R, N)
    share = same / same.sum(dim=1, keepdim=True)
    spread = noise * share.sqrt()  # epsilon n^-1/2 within the class, 0 elsewhere
    weights = share + spread - spread.sum(dim=1, keepdim=True) * share
    return (weights @ images.flatten(1)).view(len(picked), *images.shape[1:])
