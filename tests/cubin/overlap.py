#!/usr/bin/env python3
"""Whether the main loops of chapter 3 still work while products do.

The order in the source and in the PTX does not tell: ptxas moves the wait for a product up in front of what is meant to
run beside it, without a word, when it finds both in one basic block (kernels/cuda/sm90/attend.h). So this reads the
machine code. Forward: in the loop, the scores' product, the output's, the wait for the former, then all exponentials,
then the wait for the latter. Backward, of a tile that all keys meet: after the exponentials dv is issued before dP is
waited for, and waited for behind dS, dq and dk; dq is handed over while dk is at work.
Usage: overlap.py OBJECT...; exit code 1 and the loop, if one has lost it.
"""
import re
import sys

from sass import kernels, landmarks

# One letter an instruction. Only the main loop of forward waits with one group left at work.
LETTERS = {'QK': 'q', 'PV': 'p', 'exp': 'e', 'fence': 'f', 'wait<0>': '0', 'wait<1>': '1', 'wait<2>': '2',
           'group?': '?', 'store': 's', 'store matrix': 'm'}
LOOP = re.compile(r'f(q+)([^q01]*?)(p+)1(e*)0')
WEIGHTS_A_STEP = 8  # a step of PV sums over 16 keys of 64 rows; 128 threads share these weights


TILE = re.compile(r'e+f(p+)1(m+)f(q+)(p+)21(s+)0')


def letters(code, without=''):
    return ''.join(letter for letter in (LETTERS[mark] for mark in landmarks(code)) if letter not in without)


def backward_problem(code):
    text = letters(code)
    tile = TILE.search(text)
    return None if tile else 'no tile of the expected order in ' + text


def problem(code):
    """What is wrong with a kernel's main loop, or nothing."""
    text = letters(code, without='sm')
    loop = LOOP.search(text)
    if not loop:
        return 'no loop of the expected order in ' + text
    between, output, after = loop.group(2), loop.group(3), loop.group(4)
    if 'e' in between:
        return 'exponentials before the output is issued: ' + loop.group(0)
    if len(after) < WEIGHTS_A_STEP * len(output):
        return f'{len(after)} exponentials beside {len(output)} steps of the output: ' + loop.group(0)
    return None


def main(paths):
    found, wrong = 0, 0
    for path in paths:
        for name, code in kernels(path):
            if 'attend_kernel' not in name and 'backward_kernel' not in name:
                continue
            found += 1
            what = problem(code) if 'attend_kernel' in name else backward_problem(code)
            wrong += what is not None
            print(name, '-', what or 'overlaps')
    if found == 0:
        print('no attend_kernel or backward_kernel in', *paths)
    return 0 if found > 0 and wrong == 0 else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
