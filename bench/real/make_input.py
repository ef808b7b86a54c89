"""Q, K and V of one layer of SmolLM2-135M on real text, and their exact attention in float64."""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
from attention import causal_attention, rotate
from model import FILE, Model, installed_model
from tokenizer import Tokenizer

# On every Debian and Ubuntu; the first one is itself in the public domain.
LICENSES = pathlib.Path("/usr/share/common-licenses")
TEXTS = ["CC0-1.0", "GPL-3", "MPL-2.0", "Apache-2.0", "GFDL-1.3", "LGPL-2.1", "LGPL-3", "GPL-2", "MPL-1.1", "GPL-1"]
# The conversion to GGUF permutes the rows of Wq and Wk of Llama models so that pairs stand side by side.
PAIRING, OTHER_PAIRING = "interleaved", "half"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192, help="length of the sequence (default 8192)")
    parser.add_argument("--layer", type=int, default=10, help="0 to 29 (default 10)")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the files, made if missing")
    parser.add_argument("--text", type=pathlib.Path, nargs="+", help="files to read instead of the licences")
    parser.add_argument("--dtype", choices=["f32", "f16"], default="f32", help="of q, k, v as written (default f32)")
    parser.add_argument(
        "--expected-stride", type=int, default=1, help="keep every n-th row of the expected output (default 1: all)"
    )
    parser.add_argument(
        "--check-tokens", type=int, default=1021, help="tokens of the check of the model itself (default 1021; 0: none)"
    )
    args = parser.parse_args()
    for name, value, least in [
        ("--tokens", args.tokens, 1),
        ("--layer", args.layer, 0),
        ("--expected-stride", args.expected_stride, 1),
        ("--check-tokens", args.check_tokens, 0),
    ]:
        if value < least:
            parser.error(f"{name} is {value}, allowed are numbers from {least}")
    if args.check_tokens == 1:
        parser.error("--check-tokens is 1, allowed are 0 and numbers from 2: the first token is not predicted")
    return args


def tokens_of(files, count, tokenizer):
    """The first `count` tokens of the files one after the other, and the files that they came from."""
    ids, used = [], []
    for file in files:
        if len(ids) >= count:
            break
        if file.is_file():
            ids += tokenizer.encode(file.read_text(encoding="utf-8", errors="replace"))
            used.append(str(file))
    if len(ids) < count:
        sys.exit(f"--tokens is {count}, the texts have only {len(ids)}: {', '.join(used) or 'none was found'}; see --text")
    return np.array(ids[:count]), used


def check_model(model, ids):
    """Cross-entropy with both pairings. A model that was read wrongly does not predict the text."""
    nats = {pairing: model.cross_entropy(ids, pairing) for pairing in (PAIRING, OTHER_PAIRING)}
    for pairing, value in nats.items():
        print(f"{len(ids)} tokens, {pairing}: {value:.4f} nats a token, perplexity {math.exp(value):.2f}")
    if not nats[PAIRING] < min(4.0, nats[OTHER_PAIRING]):
        sys.exit(f"the model does not predict the text with {PAIRING} pairs: {nats}")
    return nats


def main():
    args = arguments()
    start = time.monotonic()
    model = Model(installed_model())
    if args.layer >= model.shape.layers:
        sys.exit(f"--layer is {args.layer}, the model has layers 0 to {model.shape.layers - 1}")
    files = args.text or [LICENSES / name for name in TEXTS]
    ids, used = tokens_of(files, args.tokens, Tokenizer(model.tokens, model.merges))
    nats = check_model(model, ids[: args.check_tokens]) if args.check_tokens else None

    x = model.embed(ids)
    for layer in range(args.layer):
        x = model.run_layer(x, layer, PAIRING)
    stored = {"f32": np.float32, "f16": np.float16}[args.dtype]
    q, k, v = (tensor.astype(stored) for tensor in model.project(x, args.layer))

    # From the values as written, so that their own rounding is no part of anybody's error.
    base = model.shape.rope_base
    q64, k64, v64 = (tensor.astype(np.float64) for tensor in (q, k, v))
    out, lse = causal_attention(rotate(q64, base, PAIRING), rotate(k64, base, PAIRING), v64)
    rows = np.arange(0, args.tokens, args.expected_stride)

    args.out.mkdir(parents=True, exist_ok=True)
    arrays = {"q": q, "k": k, "v": v, "expected_out": out[rows], "expected_lse": lse}
    for name, array in arrays.items():
        np.save(args.out / f"{name}.npy", array[None])
    np.save(args.out / "expected_rows.npy", rows)
    about = {
        "model": f"{model.name} ({FILE}), {model.license}",
        "layer": args.layer,
        "tokens": args.tokens,
        "text": used,
        "shapes": {name: [1, *array.shape] for name, array in arrays.items()},
        "dtype": args.dtype,
        "mask": "causal",
        "softmax_scale": 1 / math.sqrt(model.shape.head_dim),
        "rope": {"pairing": PAIRING, "base": base, "dim": model.shape.head_dim, "applied_to_files": False},
        "expected_stride": args.expected_stride,
        "largest": {name: float(np.abs(array).max()) for name, array in arrays.items()},
    }
    if nats:
        about["check"] = {"tokens": args.check_tokens, "nats_a_token": nats}
    (args.out / "input.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    print(f"{args.out}: {args.tokens} tokens of layer {args.layer} in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
