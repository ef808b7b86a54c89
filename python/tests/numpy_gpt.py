"""A two-layer Llama in NumPy with its backward written out, trained on the rows of one rank.

The same model as bench/training/model.py, without PyTorch: what it shows about ringattn's gradients can run anywhere.
Every operation returns its result and a function that maps the result's gradient to the input's.
"""

import numpy as np

DIM, HEADS, HEADS_KV, HEAD_DIM, HIDDEN, LAYERS, BASE = 24, 4, 2, 6, 40, 2, 10000.0


def parameters(dtype, seed=1):
    """Name -> array, normal and 0.1 wide, the same values in every dtype; the norms' weights are 1."""
    rng = np.random.default_rng(seed)
    shapes = {"embedding": (256, DIM), "norm": (DIM,)}
    for i in range(LAYERS):
        shapes |= {f"{i}.q": (HEADS * HEAD_DIM, DIM), f"{i}.out": (DIM, HEADS * HEAD_DIM)}
        shapes |= {f"{i}.k": (HEADS_KV * HEAD_DIM, DIM), f"{i}.v": (HEADS_KV * HEAD_DIM, DIM)}
        shapes |= {f"{i}.gate": (HIDDEN, DIM), f"{i}.up": (HIDDEN, DIM), f"{i}.down": (DIM, HIDDEN)}
        shapes |= {f"{i}.attention_norm": (DIM,), f"{i}.feed_forward_norm": (DIM,)}
    drawn = {name: 0.1 * rng.standard_normal(s) if len(s) > 1 else np.ones(s) for name, s in shapes.items()}
    return {name: x.astype(np.float32).astype(dtype) for name, x in drawn.items()}


class DenseAttention:
    """Causal attention with RoPE (half) on one rank, with the calls of ringattn.RingAttention. No blocks, no lse."""

    def __init__(self, rows, dtype):
        angle = np.arange(rows)[:, None, None] * BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.cos, self.sin = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
        self.hidden = np.triu(np.ones((rows, rows), bool), 1)
        self.scale = dtype(HEAD_DIM**-0.5)

    def _rotate(self, x, direction):
        a, b = np.split(x, 2, axis=-1)
        sin = direction * self.sin
        return np.concatenate([a * self.cos - b * sin, a * sin + b * self.cos], axis=-1)

    def _weights(self, q, k):
        """Rotated q and k of every query head, and the weights [batch, heads, rows, rows]."""
        q, k = self._rotate(q, 1), np.repeat(self._rotate(k, 1), HEADS // HEADS_KV, axis=2)
        score = np.where(self.hidden, -np.inf, np.einsum("bihd,bjhd->bhij", q, k) * self.scale)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        return q, k, weight / weight.sum(axis=-1, keepdims=True)

    def forward(self, q, k, v):
        _, _, weight = self._weights(q, k)
        return np.einsum("bhij,bjhd->bihd", weight, np.repeat(v, HEADS // HEADS_KV, axis=2)), None

    def backward(self, dout, q, k, v, out, lse):
        q, k, weight = self._weights(q, k)
        dweight = np.einsum("bihd,bjhd->bhij", dout, np.repeat(v, HEADS // HEADS_KV, axis=2))
        dscore = weight * (dweight - (dweight * weight).sum(axis=-1, keepdims=True)) * self.scale
        dq = np.einsum("bhij,bjhd->bihd", dscore, k)
        dk, dv = np.einsum("bhij,bihd->bjhd", dscore, q), np.einsum("bhij,bihd->bjhd", weight, dout)
        of_group = (*dk.shape[:2], HEADS_KV, HEADS // HEADS_KV, HEAD_DIM)
        dk, dv = dk.reshape(of_group).sum(axis=3), dv.reshape(of_group).sum(axis=3)
        return self._rotate(dq, -1), self._rotate(dk, -1), dv


class Pass:
    """One forward over a rank's rows; `gradients` fills while its operations' functions are called in reverse."""

    def __init__(self, weights, attention):
        self.weights, self.attention = weights, attention
        self.gradients = {name: np.zeros_like(w) for name, w in weights.items()}

    def linear(self, x, name):
        def back(dy):
            self.gradients[name] += dy.T @ x
            return dy @ self.weights[name]

        return x @ self.weights[name].T, back

    def norm(self, x, name):
        weight = self.weights[name]
        inverse = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + x.dtype.type(1e-5))
        normed = x * inverse

        def back(dy):
            self.gradients[name] += (dy * normed).sum(axis=0)
            dn = dy * weight
            return inverse * (dn - normed * np.mean(dn * normed, axis=1, keepdims=True))

        return normed * weight, back

    def attend(self, x, layer):
        (q, q_back), (k, k_back), (v, v_back) = (self.linear(x, f"{layer}.{name}") for name in "qkv")
        q, k, v = (y.reshape(1, len(x), -1, HEAD_DIM) for y in (q, k, v))
        out, lse = self.attention.forward(q, k, v)
        y, y_back = self.linear(out.reshape(len(x), -1), f"{layer}.out")

        def back(dy):
            dout = y_back(dy).reshape(out.shape)
            dq, dk, dv = (g.reshape(len(x), -1) for g in self.attention.backward(dout, q, k, v, out, lse))
            return q_back(dq) + k_back(dk) + v_back(dv)

        return y, back

    def feed_forward(self, x, layer):
        (gate, gate_back), (up, up_back) = (self.linear(x, f"{layer}.{name}") for name in ("gate", "up"))
        sigmoid = 1 / (1 + np.exp(-gate))
        y, y_back = self.linear(gate * sigmoid * up, f"{layer}.down")

        def back(dy):
            dh = y_back(dy)
            return gate_back(dh * up * sigmoid * (1 + gate * (1 - sigmoid))) + up_back(dh * gate * sigmoid)

        return y, back

    def loss(self, tokens, targets, count):
        """Sum of the rows' cross-entropies in nats; fills the gradients of that sum over `count`."""
        x, residuals = self.weights["embedding"][tokens], []
        for layer in range(LAYERS):
            for name, part in (("attention_norm", self.attend), ("feed_forward_norm", self.feed_forward)):
                normed, norm_back = self.norm(x, f"{layer}.{name}")
                y, part_back = part(normed, layer)
                x = x + y
                residuals.append(lambda dx, norm_back=norm_back, part_back=part_back: dx + norm_back(part_back(dx)))
        x, norm_back = self.norm(x, "norm")
        logits, head_back = self.linear(x, "embedding")  # tied

        shifted = logits - logits.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        at = np.arange(len(tokens)), targets
        dlogits = np.exp(log_p)
        dlogits[at] -= 1
        dx = norm_back(head_back(dlogits / count))
        for back in reversed(residuals):
            dx = back(dx)
        np.add.at(self.gradients["embedding"], tokens, dx)
        return -log_p[at].sum(dtype=np.float64)


def train(attention, rows, text, steps, context, dtype, total, rate=3e-3):
    """Losses of `steps` steps of Adam. `rows` are this rank's positions; total() sums an array over the ranks."""
    weights = parameters(dtype)
    names = list(weights)
    first = {name: np.zeros_like(w) for name, w in weights.items()}
    second = {name: np.zeros_like(w) for name, w in weights.items()}
    losses = []
    for step in range(steps):
        begin = step * 97 % (len(text) - context)  # 97: another place every time
        piece = np.frombuffer(text, np.uint8)[begin : begin + context + 1].astype(np.int64)
        run = Pass(weights, attention)
        loss = run.loss(piece[rows], piece[rows + 1], context)
        losses.append(float(total(np.array([loss]))[0]) / context)
        flat = total(np.concatenate([run.gradients[name].ravel() for name in names]))
        pieces = np.split(flat, np.cumsum([weights[name].size for name in names])[:-1])
        for name, g in zip(names, pieces):
            g = g.reshape(weights[name].shape)
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.95 * second[name] + 0.05 * g * g
            m, v = first[name] / (1 - 0.9 ** (step + 1)), second[name] / (1 - 0.95 ** (step + 1))
            weights[name] = (weights[name] - rate * m / (np.sqrt(v) + 1e-6)).astype(dtype)
    return losses
