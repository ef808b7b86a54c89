"""Rotary embedding and exact causal attention with NumPy alone, in the precision of the arrays given.

In float64 this is the expected result of the real input; nothing of ringattn takes part in it.
"""

import numpy as np


def rotate(x, base, pairing):
    """RoFormer, equation 15, at positions 0, 1, 2, ...; x [rows, heads, dim]. Angles in float64.

    half: element e turns with e + dim/2; interleaved: 2e with 2e+1.
    """
    rows, _, dim = x.shape
    angle = np.outer(np.arange(rows), base ** (-np.arange(0, dim, 2) / dim))
    cos, sin = (f(angle)[:, None, :].astype(x.dtype) for f in (np.cos, np.sin))
    first, second = {
        "half": (np.s_[..., : dim // 2], np.s_[..., dim // 2 :]),
        "interleaved": (np.s_[..., 0::2], np.s_[..., 1::2]),
    }[pairing]
    turned = np.empty_like(x)
    turned[first] = x[first] * cos - x[second] * sin
    turned[second] = x[first] * sin + x[second] * cos
    return turned


def causal_attention(q, k, v, block=512):
    """q [rows, heads, dim], k and v [rows, heads_kv, dim] -> out [rows, heads, dim], lse [heads, rows].

    Query head h reads KV head h // (heads // heads_kv); scale 1/sqrt(dim); lse is the natural logarithm. Query
    rows are taken `block` at a time, so that 8,192 rows need a few hundred MB and not several GB.
    """
    rows, heads, dim = q.shape
    group = heads // k.shape[1]
    scale = q.dtype.type(1 / np.sqrt(dim))
    out = np.empty((rows, heads, v.shape[2]), q.dtype)
    lse = np.empty((heads, rows), q.dtype)
    for head in range(heads):
        keys = np.ascontiguousarray(k[:, head // group].T)
        values = np.ascontiguousarray(v[:, head // group])
        for begin in range(0, rows, block):
            end = min(begin + block, rows)
            score = (q[begin:end, head] @ keys[:, :end]) * scale
            later = np.arange(end) > np.arange(begin, end)[:, None]
            score[later] = -np.inf
            top = score.max(axis=1)
            weight = np.exp(score - top[:, None])
            total = weight.sum(axis=1)
            out[begin:end, head] = (weight @ values[:end]) / total[:, None]
            lse[head, begin:end] = top + np.log(total)
    return out, lse
