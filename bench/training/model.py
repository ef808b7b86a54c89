"""A small Llama: RMSNorm, grouped-query attention, SwiGLU, tied embedding. Its sequence may be spread over ranks.

Only attention looks beyond a token's own row. Everything else here works on whichever rows a rank holds, and does
not know that there are ranks.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 256  # bytes
    layers: int = 2
    dim: int = 128
    heads: int = 4
    heads_kv: int = 2
    hidden: int = 344  # about 8/3 of dim (SwiGLU, arXiv:2002.05202)
    rope_base: float = 10000.0

    @property
    def head_dim(self):
        return self.dim // self.heads


class Attention(nn.Module):
    """`attend` maps q [batch, rows, heads, head_dim], k and v [batch, rows, heads_kv, head_dim], none of them
    rotated yet, to out [batch, rows, heads, head_dim]. See attention.py."""

    def __init__(self, shape, attend):
        super().__init__()
        width, width_kv = shape.heads * shape.head_dim, shape.heads_kv * shape.head_dim
        self.q = nn.Linear(shape.dim, width, bias=False)
        self.k = nn.Linear(shape.dim, width_kv, bias=False)
        self.v = nn.Linear(shape.dim, width_kv, bias=False)
        self.out = nn.Linear(width, shape.dim, bias=False)
        self.head_dim = shape.head_dim
        self.attend = attend

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (-1, self.head_dim)) for part in (self.q, self.k, self.v))
        return self.out(self.attend(q, k, v).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.up = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, shape, attend):
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=1e-5)
        self.attention = Attention(shape, attend)
        self.feed_forward_norm = nn.RMSNorm(shape.dim, eps=1e-5)
        self.feed_forward = FeedForward(shape)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    """tokens [batch, rows] of this rank -> logits [batch, rows, vocabulary]."""

    def __init__(self, shape, attend):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.layers = nn.ModuleList(Layer(shape, attend) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.dim, eps=1e-5)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embedding.weight)


def seeded(shape, attend, seed, dtype=torch.float32):
    """The same weights for the same seed, on every rank and in every dtype: normal, 0.02 wide, drawn in float64."""
    model = GPT(shape, attend).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # the norms' weights stay 1
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.02
                parameter.copy_(drawn.float())
    return model
