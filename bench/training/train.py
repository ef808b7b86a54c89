"""Trains a small GPT on bytes of real text, its sequence spread over the ranks of MPI.

    launch/local -n 3 -- python bench/training/train.py --attention ring --layout zigzag
"""

import argparse
import hashlib
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from mpi4py import MPI

import attention
import model
import text


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", choices=["ring", "plain"], required=True)
    parser.add_argument("--layout", choices=["contiguous", "zigzag", "striped"], help="of the ring; it has to be named")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="float64: plain only")
    parser.add_argument("--context", type=int, default=509, help="tokens of a sequence, over all ranks (default 509)")
    parser.add_argument("--batch", type=int, default=1, help="sequences of a step (default 1)")
    parser.add_argument("--steps", type=int, default=240, help="(default 240)")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate (default 1e-3)")
    parser.add_argument("--warmup", type=int, default=50, help="steps until the rate is reached (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument("--text", type=pathlib.Path, nargs="+", default=text.DEFAULT, help="files (default: licences)")
    parser.add_argument("--losses", type=pathlib.Path, help="file for the loss of every step, as CSV")
    args = parser.parse_args(argv)
    if (args.attention == "ring") != (args.layout is not None):
        parser.error(f"--layout is {args.layout}, --attention is {args.attention}: a ring has a layout, plain has none")
    if args.attention == "ring" and args.dtype != "float32":
        parser.error(f"--dtype is {args.dtype}, a ring takes float32 here")
    if args.attention == "plain" and MPI.COMM_WORLD.size > 1:
        parser.error(f"--attention is plain, which runs on one rank, not on {MPI.COMM_WORLD.size}")
    for name, least in [("context", 1), ("batch", 1), ("steps", 1), ("warmup", 1)]:
        if getattr(args, name) < least:
            parser.error(f"--{name} is {getattr(args, name)}, allowed are numbers from {least}")
    return args


def loss_and_gradients(gpt, tokens, rows, comm):
    """Mean loss over the tokens of all ranks, and in every parameter's .grad its gradient; the same on every rank.

    tokens [batch, context + 1] is the whole sequence, rows are the global positions that this rank holds. The target of
    a row is the token after it in the sequence, whoever holds that row's successor.
    """
    inputs, targets = tokens[:, rows], tokens[:, rows + 1]
    losses = F.cross_entropy(gpt(inputs).flatten(0, 1), targets.flatten(), reduction="none")
    count = tokens.shape[0] * (tokens.shape[1] - 1)
    gpt.zero_grad()
    (losses.sum() / count).backward()  # a rank may hold no row: it still takes its part in the ring

    parameters = list(gpt.parameters())
    gradient = torch.cat([p.grad.flatten() for p in parameters])
    comm.Allreduce(MPI.IN_PLACE, gradient.numpy())
    for p, summed in zip(parameters, gradient.split([p.numel() for p in parameters])):
        p.grad = summed.view_as(p)
    return comm.allreduce(losses.detach().double().sum().item()) / count


def same_on_all_ranks(gpt, comm):
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in gpt.parameters())).hexdigest()
    return len(set(comm.allgather(digest))) == 1


def main():
    args, comm = arguments(), MPI.COMM_WORLD
    shape, dtype = model.Shape(), getattr(torch, args.dtype)
    if args.attention == "ring":
        attend, rows = attention.ring(shape, args.batch, args.context, args.layout, comm)
    else:
        attend, rows = attention.plain(shape, args.context, dtype)
    gpt = model.seeded(shape, attend, args.seed, dtype)
    source = text.Text(args.text)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=args.rate, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup))

    losses, start = [], time.monotonic()
    for step, tokens in zip(range(args.steps), source.batches(args.batch, args.context, args.seed)):
        losses.append(loss_and_gradients(gpt, torch.from_numpy(tokens), rows, comm))
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        if comm.rank == 0 and (step % 50 == 0 or step + 1 == args.steps):
            print(f"step {step}: {losses[-1]:.6f} nats a byte, {time.monotonic() - start:.1f} s", flush=True)

    if not same_on_all_ranks(gpt, comm):
        sys.exit("the ranks' weights differ after the last step")
    if comm.rank == 0 and args.losses:
        lines = [f"# text sha256 {source.sha256}", "step,loss", *(f"{i},{loss:.12g}" for i, loss in enumerate(losses))]
        args.losses.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
