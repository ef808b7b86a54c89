"""Attention and its gradients in float64 from the definition, and ranks as threads."""

import threading

import numpy as np


def attention(q, k, v, visible, dout=None):
    """(out, lse) or (out, lse, dq, dk, dv) of [batch, rows, heads, dim]; visible[i, j]: query i sees key j."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    batch, rows, heads, dim = q.shape
    group = heads // k.shape[2]
    out = np.zeros((batch, rows, heads, v.shape[3]))
    lse = np.full((batch, heads, rows), -np.inf)
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, :, h // group], v[b, :, h // group]
            s = np.where(visible, q[b, :, h] @ keys.T / np.sqrt(dim), -np.inf)
            top = s.max(axis=1, initial=-np.inf)
            e = np.exp(s - np.where(np.isfinite(top), top, 0)[:, None])
            total = e.sum(axis=1)
            p = e / np.where(total > 0, total, 1)[:, None]
            out[b, :, h] = p @ values
            lse[b, h] = np.where(total > 0, top + np.log(np.where(total > 0, total, 1)), -np.inf)
            if dout is not None:
                do = dout[b, :, h].astype(np.float64)
                ds = p * (do @ values.T - (do * out[b, :, h]).sum(axis=1)[:, None])
                dq[b, :, h] = ds @ keys / np.sqrt(dim)
                dk[b, :, h // group] += ds.T @ q[b, :, h] / np.sqrt(dim)
                dv[b, :, h // group] += p.T @ do
    return (out, lse) if dout is None else (out, lse, dq, dk, dv)


def causal(seqlen_q, seqlen_k):
    return np.arange(seqlen_k)[None, :] <= np.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q


def on_ranks(ends, body):
    """body(end) on a thread for each end; the results in rank order, an exception in place of a result."""
    results = [None] * len(ends)

    def run(rank):
        try:
            results[rank] = body(ends[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(r,)) for r in range(len(ends))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
