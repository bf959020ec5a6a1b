"""Reductions over the live entries of an array; an empty selection gives 0.

Dead entries may hold anything, also inf and NaN: they are replaced before they are
used, so that neither the value nor the gradient sees them.
"""

import jax.numpy as jnp


def fill(x, mask):
    """`x` where `mask`, else 0."""
    return jnp.where(mask, x, 0.0)


def total(x, mask):
    """Sum over the live entries."""
    return fill(x, mask).sum()


def largest(x, mask):
    """Largest of the live entries, or 0 if none is above 0."""
    return fill(x, mask).max(initial=0.0)


def weighted(x, weight):
    """Sum of `weight * x` where the weight is not 0."""
    return (fill(x, weight != 0.0) * weight).sum()
