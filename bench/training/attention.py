"""The two attentions that the model is trained with: PyTorch's own, and ringattn's. Both are causal, with RoPE."""

import ringattn
import ringattn.torch
import torch
import torch.nn.functional as F


def ring(shape, batch, context, layout, comm):
    """Attention over the whole sequence, of which each rank of `comm` holds the rows that `layout` gives it, and those
    rows: their positions in the sequence, in the order of the rank's rows.

    RoPE is ringattn's, which knows the position of every row. Collective, and so is every call of what it returns.
    """
    layout = ringattn.Layout(layout, context, comm.size)
    attention = ringattn.RingAttention(
        batch=batch,
        num_heads=shape.heads,
        num_heads_kv=shape.heads_kv,
        head_dim=shape.head_dim,
        mask="causal",
        seqlen_q=context,
        layout=layout,
        rope=ringattn.Rope("half", base=shape.rope_base),
        comm=comm,
        threads=torch.get_num_threads(),
    )

    def attend(q, k, v):
        return ringattn.torch.ring_attention(q, k, v, attention=attention)

    return attend, torch.from_numpy(layout.positions(comm.rank))


def plain(shape, context, dtype=torch.float32):
    """PyTorch's scaled_dot_product_attention on one rank that holds all `context` rows."""
    pairs = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angle = torch.arange(context, dtype=torch.float64)[:, None, None] * shape.rope_base**-pairs
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)  # [rows, 1, head_dim / 2]

    def rotate(x):  # RoFormer, arXiv:2104.09864, eq. 15, with the halves of a head as pairs
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)

    def attend(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (rotate(q), rotate(k), v))  # PyTorch wants the heads before the rows
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

    return attend, torch.arange(context)
